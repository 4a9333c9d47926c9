"""The built-in data sets are the real ones, and a user's own data is checked at the door."""

import re

import numpy as np
import pytest

from repshare.errors import ConfigError, DataError
from repshare_lab.data import DATASETS, histogram, load
from repshare_lab.data.bundled import FILES, read_bundled
from repshare_lab.data.contents import Arrays, verify

SIZES = {"mnist": (60_000, 10_000), "fashion_mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)}
SIZES |= {"digits": (1_200, 597), "breast_cancer": (400, 169), "wine": (120, 58), "colour_names": (649, 300)}
HISTOGRAMS = {
    "breast_cancer": [147, 253],
    "wine": [39, 50, 31],
    "colour_names": [134, 184, 94, 97, 70, 70],
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "digits": [119, 121, 117, 121, 120, 123, 120, 118, 119, 122],
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_data_set_has_its_published_shape_and_classes(name):
    splits, content = load(name), DATASETS[name]
    for (inputs, labels), size in zip((splits.train, splits.test), SIZES[name], strict=True):
        assert inputs.shape == (size, *content.shape)
        assert inputs.dtype == content.dtype
        assert labels.shape == (size,)
        assert labels.dtype == np.int64
    found = histogram(splits.train.labels, [np.arange(SIZES[name][0])], content.classes)[0]
    assert found.tolist() == HISTOGRAMS.get(name, [SIZES[name][0] // 10] * 10)


FIRST_LABELS = {
    "mnist": ([5, 0, 4, 1, 9, 2, 1, 3, 1, 4], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]),
    "fashion_mnist": ([9, 0, 0, 3, 0, 2, 7, 2, 5, 5], [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]),
    "cifar10": ([6, 9, 9, 4, 1, 1, 2, 7, 8, 3], [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]),
    "digits": ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None),
}


@pytest.mark.parametrize("name", FIRST_LABELS)
def test_samples_are_in_the_published_order(name):
    splits = load(name)
    train, test = FIRST_LABELS[name]
    assert splits.train.labels[:10].tolist() == train
    assert test is None or splits.test.labels[:10].tolist() == test


@pytest.mark.parametrize("name", FILES)
def test_a_scikit_learn_that_keeps_its_files_elsewhere_is_asked_for_the_data(monkeypatch, name):
    read = read_bundled(name)
    monkeypatch.setitem(FILES, name, "elsewhere.csv")
    assert all(map(np.array_equal, read_bundled(name), read))


def as_arrays(splits):
    return Arrays(*splits.train, *splits.test)


@pytest.mark.parametrize("field", Arrays._fields)
def test_one_changed_value_anywhere_is_noticed(field):
    arrays = as_arrays(load("digits"))
    verify(arrays, "digits")
    changed = getattr(arrays, field).copy()
    if changed.ndim == 1:
        changed = np.roll(changed, 1)  # the histogram stays as it is
    else:
        changed.flat[-1] ^= 1
    with pytest.raises(DataError, match="not digits: the samples have another SHA-256"):
        verify(arrays._replace(**{field: changed}), "digits")


def test_the_right_bytes_in_a_wrong_shape_or_of_another_set_are_noticed():
    arrays = as_arrays(load("digits"))
    flat = arrays.train_images.reshape(1200, 1, 4, 16)
    with pytest.raises(DataError, match=r"train images are uint8 of shape \(1200, 1, 4, 16\)"):
        verify(arrays._replace(train_images=flat), "digits")
    bytewise = arrays.test_labels.view(np.uint8).reshape(597, 8)[:, 0]
    with pytest.raises(DataError, match=r"test labels are uint8 of shape"):
        verify(arrays._replace(test_labels=bytewise), "digits")
    with pytest.raises(DataError, match=r"not mnist: train images are uint8 of shape \(1200, 1, 8, 8\)"):
        verify(arrays, "mnist")


def test_an_unknown_name_is_told_what_exists():
    with pytest.raises(
        ConfigError, match=r"'minst': use mnist, .*digits, .* or your own as file.py:function, file.csv or"
    ):
        load("minst")


def test_a_data_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        load("mnist", folder=tmp_path / "nowhere")


@pytest.fixture
def own(tmp_path):
    """Load what a function with this body returns."""

    def load_body(body):
        path = tmp_path / "mine.py"
        path.write_text(f"import numpy as np\nimport torch\n\ndef data():\n    {body}\n")
        return load(f"{path}:data")

    return load_body


def test_own_grey_images_get_a_channel_and_classes_are_counted(own):
    splits = own("return (np.zeros((3, 5, 4)), [0, 1, 2]), (np.zeros((2, 5, 4)), [0, 1])")
    assert splits.train.images.shape == (3, 1, 5, 4)
    assert splits.train.images.dtype == np.float32
    assert splits.train.labels.dtype == np.int64
    assert splits.classes == 3


def test_bytes_of_own_images_become_numbers_from_0_to_1_and_classes_may_be_counted(own):
    splits = own(
        "return (torch.full((3, 2, 5, 4), 51, dtype=torch.uint8), torch.tensor([0, 1, 2])), "
        "(torch.ones(1, 2, 5, 4, dtype=torch.uint8), torch.tensor([6])), 7"
    )
    assert splits.train.images.shape == (3, 2, 5, 4)
    assert (splits.train.images == np.float32(0.2)).all()
    assert splits.notes == ("bytes of images are divided by 255",)
    assert splits.classes == 7


GOOD = "(np.zeros((2, 3, 3)), [0, 1])"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return (np.zeros((3, 3, 3)), [0, 5, 1]), " + GOOD + ", 4",
            r"train label 5 at index 1 is not in 0…3 \(4 cl",
        ),
        ("return (np.zeros((2, 3, 3)), [0, -1]), " + GOOD, "train label -1 at index 1 is not in 0…0"),
        ("return " + GOOD + ", (np.zeros((1, 3, 3)), [2])", "test label 2 at index 0 is not in 0…1"),
        (
            "x = np.zeros((2, 3, 3)); x[1, 2, 0] = np.nan; return (x, [0, 1]), " + GOOD,
            r"nan at \(1, 0, 2, 0\)",
        ),
        ("return " + GOOD + ", (np.full((2, 3, 3), np.inf), [0, 1])", r"test inputs have the value inf at"),
        ("return " + GOOD + ", (np.full((2, 3, 3), 1e300), [0, 1])", r"test inputs have the value inf at"),
        ("return (np.zeros((2, 3, 3)), [0]), " + GOOD, "train has 2 inputs but 1 labels"),
        ("return (np.zeros((0, 3, 3)), []), " + GOOD, "train is empty"),
        ("return " + GOOD + ", (np.zeros((0, 3, 3)), [])", "test is empty"),
        (
            "return (np.zeros((2, 9)), [0, 1]), " + GOOD,
            r"train inputs are float32 \(9,\) but test inputs float32 \(1, 3,",
        ),
        ("return " + GOOD + ", (np.zeros((2, 4, 4)), [0, 1])", r"\(1, 3, 3\) but test inputs .*\(1, 4, 4\)"),
        ("return " + GOOD + ", (np.zeros((2, 3, 3), int), [0, 1])", r"float32 .* but test inputs int64 \(3, 3\)"),
        ("return (np.full((2, 3, 3), 'a'), [0, 1]), " + GOOD, "train inputs are <U1, not numbers"),
        ("return ([[[1, 2]], [[1]]], [0, 1]), " + GOOD, "train inputs are not an array: ValueError"),
        (
            "return (torch.zeros(2, 3, 3, requires_grad=True), [0, 1]), " + GOOD,
            "train inputs are not an array",
        ),
        ("return (np.zeros((2, 3, 3)), [0.0, 0.5]), " + GOOD, "train labels are float64"),
        (
            "return (np.zeros((2, 3, 3)), np.eye(2, dtype=int)), " + GOOD,
            r"labels are int64 of shape \(2, 2\)",
        ),
        ("return " + GOOD + ", " + GOOD + ", 2.5", "number of classes is 2.5"),
        ("return (np.zeros((3, 3, 3)), [0, 1, 2])", r"must return \(train, test"),
        ("return None", "must return .* not NoneType"),
        ("return " + GOOD + ", " + GOOD + ", 2, 3", "must return"),
        ("raise RuntimeError('the disk\\n is away')", "mine.py:data raised RuntimeError: the disk is away"),
    ],
)
def test_own_data_that_cannot_be_trained_on_is_refused_in_one_line(own, body, message):
    with pytest.raises(DataError, match=message) as caught:
        own(body)
    assert "\n" not in str(caught.value)


def test_a_reference_to_nothing_is_refused_in_one_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("value = 3\n")
    for reference, message in (
        (f"{tmp_path}/absent.py:data", "there is no file"),
        (f"{path}:data", "has no function 'data'"),
        (f"{path}:value", "has no function 'value'"),
        (f"{tmp_path}:data", "no data set is called"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            load(reference)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["import no_such_module_anywhere", "def data(:"])
def test_a_file_that_cannot_be_imported_is_refused_in_one_line(tmp_path, line):
    path = tmp_path / "mine.py"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=r"could not be run: (ModuleNotFoundError|SyntaxError)") as caught:
        load(f"{path}:data")
    assert "\n" not in str(caught.value)
