"""In a process that finds this first: a wall clock as wrong as the file says, which may change at any time."""

import os
import time
from pathlib import Path

_true = time.time


def _wrong() -> float:
    return _true() + float(Path(os.environ["WRONG_CLOCK"]).read_text() or 0)


time.time = _wrong
