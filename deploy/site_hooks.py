"""Hooks of MkDocs (mkdocs.yml): what its theme leaves broken without a server, or without scripts from elsewhere."""

import shutil
from pathlib import Path
from typing import Any

# The theme's choice of colours stops at the first of these that is not there, as without highlight.js.
STYLES = '<meta id="hljs-light"><meta id="hljs-dark">'


def on_post_page(output: str, **_: Any) -> str:
    """Add what the theme's script expects."""
    return output.replace("</head>", f"{STYLES}</head>", 1)


def on_post_build(config: Any) -> None:
    """Make the search work from a disk, too, once MkDocs' plugin has written its files.

    The index becomes a script, and docs/search.js replaces the script that cannot read it there.
    """
    folder = Path(config["site_dir"], "search")
    index = (folder / "search_index.json").read_text("utf-8")
    (folder / "search_index.js").write_text(f"window.searchIndex = {index};\n", "utf-8")
    shutil.copy(Path(config["docs_dir"], "docs", "search.js"), folder / "main.js")
    for unused in ("worker.js", "search_index.json"):
        (folder / unused).unlink()
