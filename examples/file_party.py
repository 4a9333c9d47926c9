"""Three hospitals in a folder each, which learn together by files: see walks/files.sh. Columns are in columns.csv."""

from repshare import Party


def north() -> Party:
    """What the north brings."""
    return Party(data="north/patients.csv", label="diagnosis", ignore=("patient",))


def south() -> Party:
    """What the south brings."""
    return Party(data="south/patients.csv", label="diagnosis", ignore=("patient",))


def east() -> Party:
    """What the east brings."""
    return Party(data="east/patients.csv", label="diagnosis", ignore=("patient",))
