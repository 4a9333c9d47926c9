"""A table is read by the names of its columns; what would teach others nonsense is refused, or told."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from repshare.errors import ConfigError, DataError
from repshare.sharing.columns import Column, bound_inputs, name_inputs, read_columns
from repshare.table import check_rows, read_table

COLUMNS = read_columns(
    [
        {"name": "age", "unit": "years", "least": 0, "largest": 120},
        {"name": "sex", "categories": ["female", "male", "unknown"], "missing": "unknown"},
        {"name": "marker", "least": -5, "largest": 5.5, "missing": 0},
    ]
)
ROWS = [(30, "female", 1.5, "well"), (60.5, "male", -2, "ill"), (90, "unknown", 5.5, "well")]
NAMES = ("well", "ill")


def table(**columns):
    frame = pd.DataFrame(ROWS, columns=["age", "sex", "marker", "state"])
    return frame.assign(**columns)


def read(given, **options):
    return read_table(given, COLUMNS, "state", class_names=NAMES, **options)


def test_numbers_are_as_they_are_and_categories_are_0_or_1_in_the_agreed_order():
    found = read(table())
    assert found.inputs.tolist() == [[30, 1, 0, 0, 1.5], [60.5, 0, 1, 0, -2], [90, 0, 0, 1, 5.5]]
    assert found.labels.tolist() == [0, 1, 0]
    assert found.found.classes == {"well": 2, "ill": 1}
    assert name_inputs(COLUMNS) == ["age", "sex = female", "sex = male", "sex = unknown", "marker"]
    assert bound_inputs(COLUMNS) == ((0, 0, 0, 0, -5), (120, 1, 1, 1, 5.5))


@pytest.mark.parametrize("divider", [",", ";", "\t"])
def test_the_order_of_columns_and_the_kind_of_table_do_not_matter(tmp_path, divider):
    turned = table()[["state", "marker", "sex", "age"]]
    turned.to_csv(tmp_path / "turned.csv", index=False, sep=divider, encoding="utf-8-sig")
    for each in (turned, str(tmp_path / "turned.csv"), tmp_path / "turned.csv"):
        assert np.array_equal(read(each).inputs, read(table()).inputs)
        assert np.array_equal(read(each).labels, read(table()).labels)


def test_missing_values_are_replaced_as_agreed_and_else_their_rows_are_left_out_and_counted(tmp_path):
    given = table(age=[np.nan, 60, 90], sex=[None, "male", None], marker=[1, pd.NA, 2], state=["well", "ill", ""])
    given.to_csv(tmp_path / "gaps.csv", index=False)
    for each in (given, tmp_path / "gaps.csv"):
        got = read(each)
        assert got.inputs.tolist() == [[60, 0, 1, 0, 0]]
        assert got.rows.tolist() == [1]
        assert got.found.left_out == {"no age": 1, "no state": 1}
        assert got.found.missing == {"age": 1, "sex": 2, "marker": 1}
        told = got.found.lines()
        assert told[0].endswith("1 of 3 rows are used; 1 left out: no age; 1 left out: no state")
        assert told[1] == "missing values: age 1 (left out), sex 2 (as unknown), marker 1 (as 0)"
        assert told[2] == "classes: well 0, ill 1"


def test_a_row_without_a_value_is_left_out_where_0_is_out_of_range_too():
    weight = (Column("weight", "kg", 2.0, 300.0),)
    assert read_table(pd.DataFrame({"weight": [70, None, 80]}), weight).rows.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"age": [30, 60, 121]}, r"row 2, column age: 121 is not from 0 to 120 years.* \(1 of 3 values are not\)"),
        ({"age": [30, "sixty", 9]}, "row 1, column age: 'sixty' is not a number"),
        ({"age": [30, "inf", 9]}, "row 1, column age: inf is not from 0 to 120"),
        ({"sex": ["f", "m", "m"]}, "row 0, column sex: 'f' is not one of its categories .one of female, male, unknown"),
        ({"state": ["well", "ill", "dead"]}, "row 2, column state: 'dead' is none of the classes well, ill"),
        ({"state": [0, 1, 0]}, "row 0, column state: '0' is none of the classes well, ill"),
        ({"state": [None, "", "NA"]}, r"no row is left \(no state\)"),
        ({"Patient": [1, 2, 3]}, "a column 'Patient' that is not agreed on: take it out, or name it"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change, told):
    with pytest.raises(DataError, match=told):
        read(table(**change))


def test_a_column_that_is_missing_is_named_and_what_it_may_be_called_there():
    with pytest.raises(DataError, match="no column 'age', which is agreed on; did you mean 'Age'"):
        read(table().rename(columns={"age": "Age"}))
    with pytest.raises(DataError, match="no column 'sex', and 1 more, which is agreed on; it has age, state"):
        read(table()[["age", "state"]])


def test_columns_that_are_not_for_learning_are_named_and_told():
    assert read(table(patient=[1, 2, 3]), ignored=("patient",)).found.ignored == ("patient",)
    assert read(table(patient=[1, 2, 3]), ignored=None).found.ignored == ("patient",)


def test_classes_without_names_are_numbers():
    def labels(state):
        return read_table(table(state=state), COLUMNS, "state").labels.tolist()

    assert labels([1.0, "0", 2]) == [1, 0, 2]
    for wrong in (-1, 0.5, "ill", np.inf):
        with pytest.raises(DataError, match="is no class: the task names none"):
            labels([0, wrong, 1])


RADIUS = (Column("radius", "mm", 0.0, 40.0),)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.linspace(7, 28, 50), None),
        (np.linspace(0.7, 2.8, 50), "0.7 to 2.8 here, and agreed on from 0 to 40 mm: 95% are in the lowest tenth"),
        (np.linspace(20, 21, 50), "it uses 2.5% of the range: another unit in place of mm"),
        (np.linspace(37, 40, 50), "95% are in the highest tenth"),
        (np.append(np.full(5, 1.0), 28), None),  # too few to tell
    ],
)
def test_a_column_that_may_be_in_another_unit_is_told(values, told):
    doubts = read_table(pd.DataFrame({"radius": values}), RADIUS).found.doubts
    assert [told in doubt for doubt in doubts] == ([] if told is None else [True])


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([], "there is no column"),
        ([{"name": "a", "least": 0, "largest": 1}] * 2, "two columns have the name 'a'"),
        ([{"name": "a", "least": 1, "largest": 1}], "column a needs its least and largest value"),
        ([{"name": "a", "least": 0}], "column a needs its least and largest value"),
        ([{"name": "a", "least": "low", "largest": 1}], "least is 'low', not a number"),
        ([{"name": "a", "least": 0, "largest": 10**400}], "largest is '1000.*, not a number"),
        ([{"name": "a", "categories": "x"}], "two or more different categories"),
        ([{"name": "a", "categories": ["x", "x"]}], "two or more different categories"),
        ([{"name": "a", "categories": 7}], "two or more different categories"),
        ([{"name": "a", "categories": "x|y", "least": 0}], "not both"),
        ([{"name": "a", "categories": "x|y", "missing": "z"}], "'z' stands for missing values, but is not one of x, y"),
        ([{"name": "a", "least": 0, "largest": 1, "missing": 2}], "2 stands for missing values, but is not from 0 to"),
        ([{"name": "", "least": 0, "largest": 1}], "a column needs a name"),
        ([{"name": "a\x1b[2J", "least": 0, "largest": 1}], "words without control characters"),
        ([{"name": "a", "min": 0}], "described by name, unit, least, .*, not by name, min"),
        ([7], "described by name, .*, not by 7"),
    ],
)
def test_columns_that_say_too_little_are_refused(columns, told):
    with pytest.raises(ConfigError, match=told):
        read_columns(columns)


def test_columns_come_from_a_file_a_data_frame_or_a_list(tmp_path):
    told = "name,unit,least,largest,categories,missing\nage,years,0,120,,\nsex,,,,female|male|unknown,unknown\n"
    path = tmp_path / "columns.csv"
    path.write_text(f"{told}marker,,-5,5.5,,0\n")
    for given in (path, pd.read_csv(path), [each.describe() for each in COLUMNS], COLUMNS):
        assert read_columns(given) == COLUMNS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty: its first row must name the columns"),
        ("age,age\n1,2\n", "two columns 'age'"),
        ("age,sex\n1\n", "row 2: 1 cells, but the head has 2"),
        ("age,sex,marker,state\n", "has a head, and no row"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, told):
    (tmp_path / "given.csv").write_text(text)
    with pytest.raises((ConfigError, DataError), match=told):
        read(tmp_path / "given.csv")
    (tmp_path / "given.csv").write_bytes("µ,age\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not written in UTF-8"):
        read(tmp_path / "given.csv")


def test_numbers_without_names_are_at_least_in_the_ranges():
    check_rows(read(table()).inputs, COLUMNS)
    with pytest.raises(DataError, match=r"row 0 has 1.5 as number 1, from 0 to 1 is agreed on"):
        check_rows([[30, 1.5, 0, 0, 1]], COLUMNS)
    with pytest.raises(DataError, match="a row has 3 numbers; the task's columns make 5"):
        check_rows([[30, 1, 0]], COLUMNS)


def test_a_data_frame_needs_no_import_of_pandas_here():
    """Nor of PyTorch: a party of tables may have neither."""
    code = """
import sys
from repshare.table import read_table
class Held:
    columns = ["radius"]
    def __getitem__(self, name): return [1.0, 2.0]
    def __len__(self): return 2
from repshare.sharing.columns import Column
print(read_table(Held(), [Column("radius", "mm", 0.0, 40.0)]).inputs.tolist(), {"pandas", "torch"} & {*sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[1.0], [2.0]] set()\n"
