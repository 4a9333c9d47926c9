"""Logs: one JSON object a line on standard error."""

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from repshare.relay.limits import RateLimiter

log = logging.getLogger("repshare.relay")


class JsonLines(logging.Formatter):
    """A record as a JSON object; what was given as `extra={"fields": …}` stands in it under its own names."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write one line."""
    log.log(level, event, extra={"fields": fields})


class RateLimitedLog:
    """The lines a second that each kind of cause may have in the log; the rest is counted, and logged once a second."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates, self._left_out = RateLimiter(per_second, burst, clock), Counter[str]()

    def write(self, cause: Hashable, who: str, event: str, level: int = logging.WARNING, **fields: Any) -> None:
        """Write one line, if this cause has any left. `who` is what lines left out are counted by."""
        if self._rates.take(cause) == 0:
            log_event(event, level, **fields)
        else:
            self._left_out[who] += 1

    def flush(self) -> None:
        """Log how many lines were left out since the last time."""
        for who, lines in self._left_out.items():
            log_event("lines left out", logging.WARNING, lines=lines, of=who)
        self._left_out.clear()


def set_up(level: str = "info") -> None:
    """Write every log of this process, the server's own included, as JSON on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Not its warnings: clients that do not send HTTP could fill a disk with them.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
