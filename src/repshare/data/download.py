"""One file over HTTP, with its checksum; and something to look at meanwhile."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from repshare.errors import DataError

CONNECT_SECONDS = 5.0  # being offline should be noticed soon
READ_SECONDS = 60.0
CHUNK_BYTES = 1 << 16


def download(url: str, checksum: str, into: Path, *, progress: bool) -> Path:
    """Fetch a file whose checksum (`md5:…`) is known. DataError says why it could not be downloaded."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    address = urlsplit(url)
    name = Path(address.path).name
    try:
        with _Bar(name, shown=progress) as bar:
            downloader = pooch.HTTPDownloader(
                progressbar=bar, chunk_size=CHUNK_BYTES, timeout=(CONNECT_SECONDS, READ_SECONDS)
            )
            return Path(pooch.retrieve(url, checksum, name, into, downloader=downloader))
    except OSError as error:  # requests' errors are OSErrors, with pages of text
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = f"HTTP {status}" if status else error.strerror or type(error).__name__
        raise DataError(f"{address.hostname}: {reason}") from error
    except ValueError as error:
        raise DataError(f"{address.hostname}: {name} does not have the checksum {checksum}") from error


def waiting(what: str, *, shown: bool) -> AbstractContextManager[object]:
    """Return a spinner for work that does not say how far it is."""
    return Console(stderr=True).status(what) if shown else nullcontext()


class _Bar:
    """A rich progress bar with the verbs pooch calls."""

    def __init__(self, name: str, *, shown: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
        self._task = self._progress.add_task(name, total=None)
        self.total = 0  # set by pooch when the server has told it

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, count: int) -> None:
        """Count bytes that arrived."""
        self._progress.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        """Start over from zero bytes."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """Do nothing: leaving the context removes the bar."""
