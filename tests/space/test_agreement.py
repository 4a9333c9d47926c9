"""What clients of a common classifier agree on: described, read again, and refused where it differs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from repshare import Client
from repshare.errors import ConfigError, DataError
from repshare.sharing.task import MOST_DESCRIPTION, Task
from repshare.space import Fourier, Patches
from repshare.space.agreement import Agreement, read_agreement

SPACE = Patches((1, 8, 8), sizes=(3,), filters=4)
COMMON = Agreement(SPACE, class_names=tuple("abcdefghij"), inputs=(0, 16))


def described(**changes):
    return json.dumps({**json.loads(COMMON.task(10).description), **changes})


@pytest.mark.parametrize(
    "common",
    [
        COMMON,
        Agreement(SPACE, "discriminant", 1e-3),
        Agreement(Fourier((0.0, 1.0), (1.0, 5.5), features=32), class_names=("ill", "well")),
    ],
)
def test_an_agreement_that_a_task_states_and_a_client_reads_is_the_same(common):
    task = common.task(len(common.class_names) or 10)
    again = read_agreement(task.description)
    assert again == common
    assert again.name == common.name == task.space


def test_clients_that_differ_in_anything_have_another_name():
    others = [
        COMMON._replace(space=replace(SPACE, seed=1)),
        COMMON._replace(loss="discriminant"),
        COMMON._replace(shrinkage=0.1),
        COMMON._replace(class_names=tuple("abcdefghji")),
        COMMON._replace(inputs=(0, 255)),
        COMMON._replace(class_names=()),
        COMMON._replace(inputs=None),
    ]
    assert len({each.name for each in [COMMON, *others]}) == 8
    assert COMMON._replace(inputs=(0.0, 16.0)).name == COMMON.name


def test_as_many_names_as_classes():
    with pytest.raises(ConfigError, match="there are 10 names for 3 classes"):
        COMMON.task(3)


def test_a_description_that_is_too_long_is_no_task():
    with pytest.raises(ConfigError, match=r"a description of 65,537 characters; at most 65,536"):
        Task(2, 3, space="x", format="parts", description="x" * (MOST_DESCRIPTION + 1))


HOSTILE = [
    ("", "not a JSON object"),
    ("[]", "not a JSON object"),
    ("[" * 60_000, "not a JSON object"),
    ("NaN", "not a JSON object"),
    (described(loss="hinge"), "loss is 'hinge'; this version knows squared, discriminant"),
    (described(loss="logistic"), "loss is logistic: c528c6c is the last commit that reads it"),
    (described(loss=["squared"]), "loss is"),
    (described(shrinkage="0.1"), "shrinkage is '0.1', not a number"),
    (described(shrinkage=True), "shrinkage is True, not a number"),
    (described(class_names="abc"), "class names are abc, not a list of words"),
    (described(class_names=[1, 2]), "not a list of words"),
    (described(inputs=[1, 0]), "not a least and a largest number"),
    (described(inputs=[0, float("inf")]), "not a least and a largest number"),
    (described(inputs=7), "not a least and a largest number"),
    (described(space="os.system"), "unknown space 'os.system'"),
    (described(space=None), "unknown space None"),
    (described(module="evil.py:run"), "does not fit"),
    (described(shape=[1, 8]), "channels, height and width"),
    (described(shape="188"), "shape 188, of another kind"),
    (described(shape=[1, 8, 8.5]), "of another kind"),
    (described(shape=[1, 10**9, 10**9]), "too large"),
    (described(filters=10**12), "filters 1e.12: from 1 to 1,024"),
    (described(filters=-1), "filters"),
    (described(filters=True), "filters True, of another kind"),
    (described(seed="0"), "seed 0, of another kind"),
    (described(sizes=[]), "do not fit"),
    (described(sizes=["3"]), "of another kind"),
    (described(threshold=float("nan")), "of another kind"),
    (described(whiten=1), "whiten 1, of another kind"),
    (described(deeper=1), "does not fit"),
]


@pytest.mark.parametrize(("description", "words"), HOSTILE, ids=[str(place) for place in range(len(HOSTILE))])
def test_a_description_that_is_none_is_refused_in_one_line(description, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_agreement(description)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def make_client(images, labels, space=COMMON):
    return Client(None, (images, labels), space=space, classes=10)


def test_pixels_of_the_stated_range_are_brought_to_the_one_that_filters_are_made_for(digits):
    (images, labels), _ = digits
    grey = (images[:60] + 1) * 8  # as in the file: 0 to 16
    stated = make_client(grey, labels[:60]).learner.model.vectors
    prepared = make_client(grey / 4 - 2, labels[:60], Agreement(SPACE)).learner.model.vectors
    assert np.array_equal(stated, prepared)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda grey: grey * 16, "from 0 to 16, those of client from 0 to 256$"),
        (lambda grey: grey - 8, "from 0 to 16, those of client from -8 to 8$"),
        (lambda grey: grey / 16, "those of client from 0 to 1: so narrow a range was scaled otherwise"),
    ],
)
def test_inputs_of_another_range_are_refused_with_both_named(digits, change, words):
    (images, labels), _ = digits
    with pytest.raises(DataError, match=words):
        make_client(change((images[:60] + 1) * 8), labels[:60])
