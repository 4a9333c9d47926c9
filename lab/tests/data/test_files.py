"""Tables and folders of images from the command line, and what is wrong with some."""

import numpy as np
import pytest
from PIL import Image

from repshare.errors import ConfigError, DataError
from repshare_lab.data import load

ROWS = [f"{i},{i * 0.5},{'ill' if i % 3 else 'well'}" for i in range(30)]
TABLE = "\n".join(["age,dose,state", *ROWS]) + "\n"


@pytest.fixture
def table(tmp_path):
    """Load a table with this content."""

    def load_content(content, **given):
        path = tmp_path / "table.csv"
        path.write_text(content, encoding="utf-8")
        return load(str(path), **given)

    return load_content


def test_a_table_is_read_as_it_is_with_a_fifth_of_each_class_as_test(table):
    splits = table(TABLE)
    assert splits.class_names == ("ill", "well")
    assert (np.bincount(splits.train.labels).tolist(), np.bincount(splits.test.labels).tolist()) == ([16, 8], [4, 2])
    everything = np.concatenate([splits.train.inputs, splits.test.inputs])
    assert sorted(everything[:, 0].tolist()) == list(range(30))
    assert np.array_equal(everything[:, 1], everything[:, 0] / 2)
    labels = np.concatenate([splits.train.labels, splits.test.labels])
    assert np.array_equal(labels, everything[:, 0] % 3 == 0)
    assert np.array_equal(table(TABLE).train.inputs, splits.train.inputs)
    assert not splits.standardise


def test_the_column_of_classes_and_a_file_of_test_samples_can_be_named(table, tmp_path):
    (tmp_path / "test.csv").write_text("kind;dose;age\n1;0.5;7\n0;2.5;8\n")
    splits = table("age,kind,dose\n1,0,0.1\n2,1,0.2\n3,1,0.3\n", label="kind", test_file=tmp_path / "test.csv")
    assert splits.train.labels.tolist() == [0, 1, 1]
    assert splits.test.inputs.tolist() == [[7, 0.5], [8, 2.5]]
    assert splits.test.labels.tolist() == [1, 0]
    assert splits.class_names == ("0", "1")
    (tmp_path / "test.csv").write_text("kind,dose,weight\n1,0.5,7\n0,2,3\n")
    with pytest.raises(DataError, match=r"table.csv and test.csv differ in the columns age, weight"):
        table("age,kind,dose\n1,0,0.1\n2,1,0.2\n3,1,0.3\n", label="kind", test_file=tmp_path / "test.csv")


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        (TABLE.replace("7,3.5,", "7,,"), {}, r"table.csv, column dose: row 9 has no value \(''\)"),
        (TABLE.replace("7,3.5,", "NA,3.5,"), {}, r"column age: row 9 has no value \('NA'\)"),
        (TABLE.replace("7,3.5,", "seven,3.5,"), {}, "column age: row 9 has 'seven', where others have numbers"),
        (TABLE.replace("7,3.5,", "inf,3.5,"), {}, "column age: row 9 has 'inf'"),
        (TABLE.replace("7,3.5,ill", "7,3.5,"), {}, "column state: row 9 has no class"),
        (TABLE.replace("7,3.5,", "7,3,5,"), {}, "row 9: 4 cells, but the head has 3"),
        (TABLE, {"label": "dose"}, r"column state holds no numbers \('well'\)"),
        (TABLE.replace("state", "kind"), {"label": "state"}, r"no column 'state': choose --label from age, dose, kind"),
        ("a,b\n" + "\n".join(f"{i},{i}.5" for i in range(9)), {}, "column b has 9 different values in 9 rows"),
        ("a,b\n1,x\n2,x\n", {}, "column b has 1 different values in 2 rows"),
        ("1,2\n3,4\n", {}, "begins with numbers"),
        ("a,a,b\n1,2,x\n", {}, "two columns 'a'"),
        ("", {}, "table.csv is empty"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place(table, content, given, message):
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        table(content, **given)
    assert "\n" not in str(caught.value)


def test_classes_that_are_numbers_are_in_their_order_and_a_test_may_lack_some(table, tmp_path):
    (tmp_path / "test.csv").write_text("x,y\n1,10\n2,10\n")
    splits = table("x,y\n" + "1,10\n2,2\n3,1\n" * 3, test_file=tmp_path / "test.csv")
    assert splits.class_names == ("1", "2", "10")
    assert (splits.train.labels[:3].tolist(), splits.test.labels.tolist()) == ([2, 1, 0], [2, 2])
    (tmp_path / "test.csv").write_text("x,y\n1,10\n2,3\n")
    with pytest.raises(DataError, match="test label '3' at index 1 is not one of 1, 2, 10"):
        table("x,y\n" + "1,10\n2,2\n3,1\n" * 3, test_file=tmp_path / "test.csv")


def test_files_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.csv cannot be read"):
        load(f"{tmp_path}/absent.csv")
    with pytest.raises(ConfigError, match=r"there is no folder .*absent/"):
        load(f"{tmp_path}/absent/")
    with pytest.raises(ConfigError, match="digits is no table in a CSV file: leave --label"):
        load("digits", label="state")


def paint(path, size=(4, 3), mode="L", shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, shade).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(10):
        paint(tmp_path / "pets" / "cat" / f"{number}.png", shade=number)
        paint(tmp_path / "pets" / "dog" / f"{number}.png", shade=100 + number)
    return tmp_path / "pets"


def test_a_folder_for_each_class_is_read_with_a_fifth_of_each_as_test(folder):
    (folder / "cat" / "notes.txt").write_text("not an image")
    splits = load(f"{folder}/")
    assert splits.class_names == ("cat", "dog")
    assert splits.train.inputs.shape == (16, 1, 3, 4)
    assert np.bincount(splits.test.labels).tolist() == [2, 2]
    for inputs, labels in (splits.train, splits.test):
        assert np.array_equal(inputs[:, 0, 0, 0] * 255 >= 100, labels == 1)
    assert not np.array_equal(splits.train.labels, np.sort(splits.train.labels)), "the first samples are of all classes"
    assert splits.notes[0] == "20 images of 4 × 3 pixels: bytes of images are divided by 255"


def test_halves_for_training_and_test_are_read_as_they_are_and_grey_joins_colour(tmp_path):
    for half, count in (("train", 3), ("test", 2)):
        for number in range(count):
            paint(tmp_path / half / "a" / f"{number}.png")
            paint(tmp_path / half / "b" / f"{number}.jpg", mode="RGB", shade=(255, 0, 0))
    splits = load(str(tmp_path))
    assert (splits.train.inputs.shape, splits.test.inputs.shape) == ((6, 3, 3, 4), (4, 3, 3, 4))


def test_a_folder_that_cannot_be_used_is_refused_with_the_file(folder):
    def refused(message):
        with pytest.raises((ConfigError, DataError), match=message) as caught:
            load(str(folder))
        assert "\n" not in str(caught.value)

    paint(folder / "cat" / "4.png", size=(5, 3))
    refused(r"cat/4.png has 5 × 3 pixels, most images 4 × 3: bring all to one size")
    paint(folder / "cat" / "4.png", mode="I;16")
    refused(r"cat/4.png has more than 8 bits a pixel")
    (folder / "cat" / "4.png").write_text("no image")
    refused(r"cat/4.png cannot be read as an image")
    (folder / "cat" / "4.png").unlink()
    (folder / "bird").mkdir()
    refused(r"bird has no image")
    paint(folder / "bird" / "0.png")
    refused(r"bird has one image")
    for name in ("cat", "dog"):
        (folder / name).rename(folder / f".{name}")
    refused("pets has 1 sub-folders: there must be one for each class")
