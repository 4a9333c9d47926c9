"""A command, and the package itself, import what they need and nothing else: by modules, since clocks differ."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "matplotlib", "sklearn", "pandas", "scipy", "repshare_lab", "repshare_flower"}
SERVERS = {"starlette", "uvicorn", "pydantic", "prometheus_client", "httpx2", "redis", "zenoh", "cryptography"}
LOADED = """
import json, sys
{code}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
SERVE_HELP = """
from repshare.cli.main import main
try:
    main(["relay", "serve", "--help"])
except SystemExit as done:
    assert not done.code
"""


@pytest.mark.parametrize(
    "code", ["import repshare", "import repshare.cli.main", SERVE_HELP], ids=["it", "main", "help"]
)
def test_neither_the_package_nor_a_help_imports_heavy_packages(code):
    command = [sys.executable, "-c", LOADED.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "repshare" in loaded
    assert loaded & (HEAVY | SERVERS) == set()
