"""`repshare data`: the data sets."""

from pathlib import Path
from typing import Literal

from rich.console import Console

from repshare.cli import terminal
from repshare.errors import ConfigError


def data(action: Literal["list", "fetch"], names: tuple[str, ...] = (), /, folder: Path | None = None) -> None:
    """List the datasets, or download them into the cache.

    repshare data list

    repshare data fetch mnist cifar10

    repshare data fetch mnist --folder ~/datasets

    Args:
        action: What to do: list or fetch.
        names: Datasets to fetch. Default: all.
        folder: Folder that already holds the files, as torchvision lays them out. They are put into the cache.
    """
    from repshare_lab.data import DATASETS, cache, load
    from repshare_lab.data.bundled import BUNDLED

    console = Console()
    if unknown := set(names) - set(DATASETS):
        raise ConfigError(f"no data set is called {min(unknown)!r}: choose {', '.join(DATASETS)}")
    if action == "fetch":
        for name in names or DATASETS:
            splits = load(name, folder=folder, progress=True)
            console.print(f"{name}: {len(splits.train.labels):,} training, {len(splits.test.labels):,} test samples")
        return
    rows = []
    for name, content in DATASETS.items():
        kept = "in the cache" if cache.location(name).exists() else "not fetched yet"
        where = "built in" if name in BUNDLED else kept
        sizes = f"{content.train:,}", f"{content.test:,}"
        rows.append([f"[bold]{name}[/]", content.kind, " × ".join(map(str, content.shape)), *sizes, where])
    console.print(terminal.make_table("<data set|<kind|<sample|<training|<test|<where", rows))
