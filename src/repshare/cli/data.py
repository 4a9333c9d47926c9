"""`repshare data`: the data sets."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from repshare.cli.parsing.options import Json
from repshare.errors import ConfigError
from repshare.results import terminal


def data(
    action: Annotated[Literal["list", "fetch"], tyro.conf.Positional],
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    folder: Path | None = None,
    json: Json = False,
) -> None:
    """List the datasets, or download them into the cache.

    repshare data list

    repshare data fetch mnist cifar10

    repshare data fetch mnist --folder ~/datasets

    Args:
        action: What to do: list or fetch.
        names: Datasets to fetch. Default: all.
        folder: Folder that already holds the files, as torchvision lays them out.
    """
    from repshare.data import DATASETS, cache, load
    from repshare.data.bundled import BUNDLED

    console = Console(stderr=json)
    if unknown := set(names) - set(DATASETS):
        raise ConfigError(f"no data set is called {min(unknown)!r}: choose {', '.join(DATASETS)}")
    if action == "fetch":
        for name in names or DATASETS:
            splits = load(name, folder=folder, progress=True)
            console.print(f"{name}: {len(splits.train.labels):,} training, {len(splits.test.labels):,} test samples")
    rows = {}
    for name, content in DATASETS.items():
        kept = "in the cache" if cache.location(name).exists() else "not fetched yet"
        rows[name] = {
            "kind": content.kind,
            "sample": " × ".join(map(str, content.shape)),
            "training": f"{content.train:,}",
            "test": f"{content.test:,}",
            "where": "built in" if name in BUNDLED else kept,
        }
    if json:
        terminal.print_json(rows)
    elif action == "list":
        heads = "|".join(f"<{head}" for head in ("data set", *next(iter(rows.values()))))
        console.print(terminal.make_table(heads, [[f"[bold]{name}[/]", *row.values()] for name, row in rows.items()]))
