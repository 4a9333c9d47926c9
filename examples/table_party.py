"""A hospital with a table of patients: its file, and the column of the diagnosis. Columns are in columns.csv."""

from repshare import Party


def hospital() -> Party:
    """What it brings."""
    return Party(data="patients.csv", test="others.csv", label="diagnosis", ignore=("patient",))
