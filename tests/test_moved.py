"""Names of the version before fail with their new place."""

import subprocess
import sys

import pytest

from repshare import Policy
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.moved import MOVED

OLD = {
    "import repshare; repshare.compare": "repshare.compare is repshare_lab.compare now",
    "from repshare import load": "repshare.load is repshare_lab.load now",
    "from repshare import data": "repshare.data is repshare_lab.data now",
    "from repshare.simulation import simulate": "repshare.simulation is repshare_lab.simulation now",
    "import repshare.experiments.comparison": "repshare.experiments is repshare_lab.experiments now",
    "from repshare.methods import FL": "repshare.methods.FL is repshare_lab.methods.FL now",
    "from repshare.config import Setting": "repshare.config.Setting is repshare_lab.config.Setting now",
    "from repshare import make_client_app": "repshare.make_client_app is repshare_flower.make_client_app now",
}
TRY = """
import sys
for code in sys.argv[1:]:
    try:
        exec(code)
    except ImportError as error:
        print(error)
    else:
        print("imported")
"""


def test_an_old_name_fails_with_its_new_place():
    command = [sys.executable, "-c", TRY, *OLD]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    for line, expected in zip(done.stdout.splitlines(), OLD.values(), strict=True):
        assert line.startswith(expected)


@pytest.mark.parametrize("name", ["nothing", "simulations", "compared"])
def test_a_name_that_never_was_is_an_attribute_error(name):
    import repshare

    assert not hasattr(repshare, name)


def test_what_has_moved_is_there():
    code = "import sys\nfrom importlib import import_module\n" + "".join(
        f"place, _, name = {new!r}.rpartition('.')\n"
        "module = import_module(place)\n"
        "hasattr(module, name) or import_module(f'{place}.{name}')\n"
        for new in MOVED.values()
        if not new.startswith("repshare_flower")
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


@pytest.mark.parametrize(
    ("old", "new"), [("common_precision", "precision"), ("keep_to_self", "prefer_own"), ("common_only", "sums_only")]
)
def test_a_policys_old_name_fails_with_its_new_one(old, new):
    with pytest.raises(ConfigError, match=f"{old} is called {new} now"):
        Policy(**{old: None})


def test_an_options_old_name_fails_with_its_new_one(capsys):
    with pytest.raises(SystemExit):
        main(["join", "--party", "party.py:alice", "--no-keep-to-self"])
    assert "--no-keep-to-self is no option here: it is called --prefer-own now" in capsys.readouterr().err
