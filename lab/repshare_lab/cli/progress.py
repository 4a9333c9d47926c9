"""The progress of long work on the terminal."""

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn


def progress(console: Console, unit: str = "rounds") -> Progress:
    """A progress bar with the current task, its progress and its expected end."""
    columns = *Progress.get_default_columns(), MofNCompleteColumn(), TextColumn(unit)
    return Progress(*columns, console=console, transient=True)
