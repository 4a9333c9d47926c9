"""Spaces that were chosen to read clients' samples: at a real relay, `repshare join` takes none of them unasked."""

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from repshare import Client, Policy
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.party.estimator import CommonSpaceClassifier
from repshare.relay.tasks import Tasks
from repshare.space import Fourier, Patches, choose
from repshare.space.agreement import Agreement, read_agreement
from repshare.stores import open_database
from repshare_lab import load
from support.processes import eventually
from support.relays import start_relay

PARTY = """
import torch
from repshare import LeNet5, Party
from repshare_lab import load

def images():
    train, _, _ = load("digits").normalised()
    return Party(LeNet5(), (train.images[:120], train.labels[:120]))

def table():
    train, _, _ = load("breast_cancer").normalised()
    model = torch.nn.Sequential(torch.nn.Linear(30, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return Party(model, (train.images[:120], train.labels[:120]))
"""
IMAGES, TABLE = Patches((1, 8, 8), sizes=(3, 4)), Fourier((-4.0,) * 30, (4.0,) * 30)  # the package's own choice


def bounds(low, high, **columns):
    """The same bounds for all columns, but for some."""
    pairs = [columns.get(f"column_{place}", (low, high)) for place in range(30)]
    return {"low": tuple(low for low, _ in pairs), "high": tuple(high for _, high in pairs)}


NOTHING_IN_COMMON = "two samples' vectors have nothing in common .*: a sum shows each label"
LINEAR = "it is linear .*: sums of vectors are sums of your inputs"
BORNE_BY_FEW = "of your samples, {}% make up all differences between vectors, so that sums show these"
HOSTILE = {  # a name: the space, and the words of who refuses it even with --accept-space, if anybody does
    "hash": (replace(TABLE, features=65_536, width=0.05), "has width 0.05: from 0.1 to 10 is accepted"),
    "hash-in-range": (replace(TABLE, width=0.1), NOTHING_IN_COMMON),
    "hash-of-images": (replace(IMAGES, fourier=2048, width=0.1), NOTHING_IN_COMMON),
    "linear": (replace(TABLE, width=20.0), "has width 20: from 0.1 to 10 is accepted"),
    "linear-in-range": (replace(TABLE, width=5.0), LINEAR),
    "linear-by-bounds": (replace(TABLE, **bounds(-100.0, 100.0)), LINEAR),
    "images-as-rows": (Fourier((-4.0,) * 64, (4.0,) * 64), r"your images can be read back from vectors \(R² 0.9"),
    "one-answers": (replace(IMAGES, threshold=5.0), "has threshold 5: from 0 to 2 is accepted"),
    "none-answers": (replace(IMAGES, threshold=2.0, epsilon=1.0), NOTHING_IN_COMMON),
    "window": (replace(TABLE, **bounds(0.49, 0.51)), NOTHING_IN_COMMON),
    "tail": (replace(TABLE, **bounds(3.0, 4.0)), BORNE_BY_FEW.format(r"10\.0")),
    "all-but-one": (replace(TABLE, **bounds(90.0, 91.0, column_3=(2.52, 2.56))), BORNE_BY_FEW.format(r"0\.8")),
    "one-column": (replace(TABLE, **bounds(-1e6, 1e6, column_3=(-4.0, 4.0)), width=0.1), None),
    "one-filter": (replace(IMAGES, filters=1), None),
    "pixels": (replace(IMAGES, sizes=(2,), filters=8, grid=7), None),
    "mirrored": (replace(IMAGES, mirror=True), None),
    "tried-until-it-suits": (replace(IMAGES, seed=1), None),
}
USUAL = {"usual-images": IMAGES, "usual-table": TABLE, "short": replace(TABLE, features=8)}


def party_of(space):
    return "table" if len(getattr(space, "low", ())) == 30 else "images"


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay with a task in each of these spaces."""
    folder = tmp_path_factory.mktemp("relay")
    (folder / "party.py").write_text(PARTY)
    with closing(open_database(str(folder / "relay.db"))) as database:
        for name, space in ({name: space for name, (space, _) in HOSTILE.items()} | USUAL).items():
            Tasks(database).create(name, Agreement(space).task(2 if party_of(space) == "table" else 10))
    with start_relay(folder, "--insecure") as relay:
        yield relay


def join(relay, name, space, state, *options):
    party = f"{relay.folder}/party.py:{party_of(space)}"
    named = ["--name", "alice", "--task", name, "--accept-exposure", "--state", str(state / name), "--rounds", "1"]
    main(["join", relay.url, "--party", party, *named, *options])


def published(relay, name):
    return relay.ask("GET", f"/v1/tasks/{name}/status").json()["clients"]


def test_no_hostile_space_is_taken_unasked(relay, tmp_path, capsys):
    assert len(HOSTILE) >= 12
    silent = []
    for name, (space, _) in HOSTILE.items():
        try:
            join(relay, name, space, tmp_path)
            silent.append(name)
        except SystemExit:
            told = capsys.readouterr().err
            assert re.search("hides nothing of your data|is not this package's own choice|is accepted", told), told
    assert silent == []
    assert [name for name in HOSTILE if published(relay, name)] == []


def test_the_usual_spaces_and_shorter_ones_need_no_word(relay, tmp_path):
    for name, space in USUAL.items():
        join(relay, name, space, tmp_path)
        eventually(lambda: published(relay, name) == 1, "the status is some moments old")  # noqa: B023


def test_one_is_taken_with_a_copy_of_its_agreement_or_by_a_word(relay, tmp_path):
    for name, (space, words) in HOSTILE.items():
        if words is None:
            join(relay, name, space, tmp_path, "--accept-space")
            eventually(lambda: published(relay, name) == 1, "the status is some moments old")  # noqa: B023
    space, _ = HOSTILE["mirrored"]
    (tmp_path / "copy.json").write_text(json.dumps(Agreement(space).describe()))
    join(relay, "mirrored", space, tmp_path, "--agreement", str(tmp_path / "copy.json"), "--restart")


def test_what_gives_samples_away_is_refused_even_if_accepted_unseen(relay, tmp_path, capsys):
    for name, (space, words) in HOSTILE.items():
        if words is not None:
            with pytest.raises(SystemExit):
                join(relay, name, space, tmp_path, "--accept-space")
            assert re.search(words, capsys.readouterr().err), name
            assert not published(relay, name)


def test_a_dry_run_says_what_the_space_makes_of_own_samples(relay, tmp_path, capsys):
    (tmp_path / "copy.json").write_text(json.dumps(Agreement(replace(IMAGES, filters=8, mirror=True)).describe()))
    shown = ["--party", f"{relay.folder}/party.py:images", "--agreement", str(tmp_path / "copy.json"), "--dry-run"]
    main(["join", relay.url, *shown])
    told = capsys.readouterr().out
    assert "Not this package's own choice of a space: filters 8 (usual: 48), mirror True (usual: False)\n" in told
    (tried,) = re.findall(
        r"Tried on your samples: \|cosine\| of two samples ([\d.]+) \(a hash: below 0.05\), "
        r"bend ([\d.]+) \(linear: below 0.02\); (\d+)% of the samples make up the differences\n"
        r"A regression reads inputs from vectors with R² ([\d.]+) \(all: 1\)\n",
        told,
    )
    assert tuple(map(float, tried)) == pytest.approx((0.74, 0.7, 93, 0.7), rel=0.1)
    (tmp_path / "copy.json").write_text(json.dumps(Agreement(replace(IMAGES, fourier=64, width=0.1)).describe()))
    with pytest.raises(SystemExit):
        main(["join", relay.url, *shown])
    assert "nothing in common" in capsys.readouterr().err


def sample(name, count):
    train, _, classes = load(name).normalised()
    return train.images[:count], train.labels[:count], classes


@pytest.mark.parametrize("count", [12, 120])
@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "colour_names"])
def test_the_usual_space_of_a_data_set_is_refused_for_none_of_it(name, count):
    inputs, labels, classes = sample(name, count)
    found = make_client(choose((), inputs, 0), inputs.astype("float32"), labels, classes).learner.inspect()
    assert found.likeness > 0.4
    assert found.bend > 0.05
    assert found.bearers > 0.5


def make_client(space, inputs, labels, classes, **policy):
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(8), torch.nn.Tanh(), torch.nn.Linear(8, classes))
    flat(torch.as_tensor(inputs[:1]).float())
    return Client(flat, (inputs, labels), space=Agreement(space), policy=Policy(minimum_count=1, **policy))


def test_who_says_that_the_data_may_leave_is_not_asked():
    space = replace(TABLE, width=5.0)
    with pytest.raises(ConfigError, match=r"linear .* say --share-inputs"):
        make_client(space, *sample("breast_cancer", 120))
    assert make_client(space, *sample("breast_cancer", 120), share_inputs=True).round().trouble is None


def test_an_estimator_takes_no_hostile_space_from_a_task():
    inputs, labels, _ = sample("breast_cancer", 120)
    odd, hash_like = (Agreement(replace(TABLE, **changes)).task(2) for changes in ({"seed": 1}, {"width": 0.1}))
    with pytest.raises(ConfigError, match=r"seed 1 \(usual: 0\)"):
        CommonSpaceClassifier(task=odd).fit(inputs, labels)
    CommonSpaceClassifier(task=odd, accept_space=True, accept_exposure=True).fit(inputs, labels).partial_release()
    fitted = CommonSpaceClassifier(task=hash_like, accept_space=True, accept_exposure=True).fit(inputs, labels)
    with pytest.raises(ConfigError, match=NOTHING_IN_COMMON):
        fitted.partial_release()


TOO_MUCH = [
    (Fourier((-4.0,) * 784, (4.0,) * 784, features=1 << 16), "51,380,224 frequencies .* at most 16,777,216"),
    (Fourier((-4.0,) * 9000, (4.0,) * 9000), "18,432,000 frequencies"),
    (replace(TABLE, features=1 << 18), "features 262,144: from 1 to 65,536"),
    (replace(TABLE, low=(-1e20,) * 30), r"low -1e\+20: from -1e\+12"),
    (Patches((1, 600, 600)), "360,000 numbers an image .* at most 262,144"),
    (replace(IMAGES, sizes=(3,) * 9), "9 sizes of filters"),
    (replace(IMAGES, filters=1025), "filters 1,025: from 1 to 1,024"),
    (Patches((1, 28, 28), sizes=(17,)), "sizes 17: from 2 to 16"),
    (Patches((1, 28, 28), grid=9), "grid 9: from 1 to 8"),
    (Patches((3, 256, 256), sizes=(15, 16), filters=512), "multiplications an image"),
]


@pytest.mark.parametrize(("space", "words"), TOO_MUCH, ids=[str(place) for place in range(len(TOO_MUCH))])
def test_a_parameter_out_of_range_is_refused_when_the_agreement_is_read(space, words):
    with pytest.raises(ConfigError, match=words):
        read_agreement(json.dumps(Agreement(space).describe()))


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "a\x9b2J", "new\nline", "\u202eevil"])
def test_a_class_name_that_steers_a_terminal_is_refused_on_both_sides(tmp_path, name):
    common = Agreement(TABLE, class_names=("well", name))
    with pytest.raises(ConfigError, match="has control characters"):
        read_agreement(json.dumps(common.describe()))
    with closing(open_database("memory")) as database, pytest.raises(ConfigError, match="has control characters"):
        Tasks(database).create("table", common.task(2))


def test_a_message_does_not_steer_the_terminal(relay, capsys):
    with pytest.raises(SystemExit):
        main(["join", "--party", "party.py:\x1b[2Jx", "--dry-run"])
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\\x1b[2J" in told
