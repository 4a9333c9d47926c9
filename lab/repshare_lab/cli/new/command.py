"""`repshare new`: make a small project that runs."""

import shutil
from pathlib import Path

from repshare.errors import ConfigError
from repshare.files import explain_errors

TEMPLATES = Path(__file__).parent / "templates"
NEXT = """\
{folder}: party.py, own_method.py, notebook.ipynb, README.md. Next:

  cd {folder}
  repshare compare --dataset party.py:data --model party.py:model --methods IL RS FL own_method.py:SHORT

README.md there has the other commands. Put your data and model into party.py.
"""


def new(folder: Path, /) -> None:
    """Make a small project that runs: a party, a method of your own, a notebook.

    Its data are scikit-learn's handwritten digits, until you replace them.

    repshare new hospital

    Args:
        folder: The project's folder, which must not exist yet.
    """
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists already: choose another name, or remove it")
    with explain_errors(f"{folder} cannot be made"):
        try:
            shutil.copytree(TEMPLATES, folder, ignore=shutil.ignore_patterns("__*__*"))
            readme = folder / "README.md"
            readme.write_text(readme.read_text("utf-8").replace("PROJECT", folder.resolve().name), "utf-8")
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    print(NEXT.format(folder=folder), end="")
