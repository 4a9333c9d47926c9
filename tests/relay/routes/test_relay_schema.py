"""The API is what its own description says, whatever it is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.relays import create_task, invite, start_open_relay, start_relay

EXAMPLES = int(os.environ.get("REPSHARE_SCHEMA_EXAMPLES", "5"))
# What the tensors in a body must be, and how large a task may be, is more than a schema can say.
BEYOND_A_SCHEMA = "positive_data_acceptance"


def explore(relay, *options):
    """Ask everything that can be asked; nothing may answer with 5xx, or otherwise than described."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{relay.url}/openapi.json", "--max-examples", str(EXAMPLES),
        "--exclude-checks", BEYOND_A_SCHEMA, "--seed", "1", "--request-timeout", "10", "--no-color", *options,
    ]  # fmt: skip
    places = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "support.schema_hooks", "PYTHONPATH": places}
    done = subprocess.run(
        command, cwd=relay.folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert not [line for line in relay.log() if line["level"] == "error"]
    assert relay.ask("GET", "/healthz").status_code == 200


def test_an_open_relay_does_as_it_says(tmp_path):
    with start_open_relay(tmp_path, "--rate", 0) as relay:
        explore(relay)


@pytest.mark.parametrize("role", ["client", "admin"])
def test_a_relay_with_tokens_does_as_it_says(tmp_path, role):
    create_task(tmp_path)
    token = invite(tmp_path, "alice", "--role", role, *(["--task", "digits"] if role == "client" else []))
    with start_relay(tmp_path, "--rate", 0) as relay:
        explore(relay, "-H", f"Authorization: Bearer {token}")
