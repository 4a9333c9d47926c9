"""A wall clock that is wrong for other processes, as wrong as a test likes, and at any moment."""

import os
from pathlib import Path

WRONG = Path(__file__).parent / "wrong_clock"
YEAR = 365 * 86400.0


class WrongClock:
    """The clock of all processes that are started with its environment."""

    def __init__(self, folder):
        self._place = folder / "clock"
        self.set(0)
        path = os.pathsep.join(filter(None, [str(WRONG), os.environ.get("PYTHONPATH")]))
        self.environment = {"PYTHONPATH": path, "WRONG_CLOCK": str(self._place)}

    def set(self, seconds):
        """Let it be so many seconds ahead from now on."""
        fresh = self._place.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self._place)
