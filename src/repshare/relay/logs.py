"""Logs: one JSON object a line on standard error."""

import json
import logging
import sys
import time
from typing import Any

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


def say(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write one line."""
    log.log(level, event, extra={"fields": fields})


def set_up(level: str = "info") -> None:
    """Let every log of this process, the server's own included, come as JSON on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
