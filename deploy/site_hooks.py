"""Hooks of MkDocs (mkdocs.yml): notebooks as pages, and what its theme leaves broken without a server."""

import shutil
from pathlib import Path
from typing import Any

# The theme's choice of colours stops at the first of these that is not there, as without highlight.js.
STYLES = '<meta id="hljs-light"><meta id="hljs-dark">'


def on_pre_build(config: Any) -> None:
    """Make a page of each tutorial, with its pictures next to it."""
    from nbconvert import MarkdownExporter

    for path in Path(config["docs_dir"], "docs", "tutorials").glob("*.ipynb"):
        text, made = MarkdownExporter().from_filename(str(path))  # type: ignore[no-untyped-call]
        for name, picture in made["outputs"].items():
            path.with_name(f"{path.stem}-{name}").write_bytes(picture)
            text = text.replace(f"({name})", f"({path.stem}-{name})")
        path.with_suffix(".md").write_text(text, "utf-8")
        path.unlink()


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to tutorials lead to their pages."""
    return markdown.replace(".ipynb)", ".md)")


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
