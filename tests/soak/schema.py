"""Everything that the API's own description lets one ask, and much that it does not."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.relays import create_task, invite, release, start_relay

ROLES = {"client": ("--task", "digits"), "viewer": ("--task", "digits"), "admin": ()}
# What the tensors in a body must be, and how large a task may be, is more than a schema can say; and parameters that
# nobody has heard of are ignored, not refused.
BEYOND_A_SCHEMA = "positive_data_acceptance,negative_data_rejection"
KNOWN = '[parameters]\ntask = "digits"\nclient = "alice"\n'  # names that are there, so that more than 404 is seen


def explore(folder, *, examples, roles=(None, *ROLES), names=("any", "known"), seed=1):
    """Ask with no token and with one of each role, with names that are there and with any: requests by role."""
    create_task(folder)
    tokens = {role: invite(folder, {"client": "alice"}.get(role, role), "--role", role, *ROLES[role]) for role in ROLES}
    asked = {}
    with start_relay(folder, "--rate", 0) as relay:
        for number in range(20):
            assert relay.publish("alice", release(number), tokens["client"]).status_code == 200
        for role in roles:
            for which in names if role else ("any",):
                (folder / "schemathesis.toml").write_text(KNOWN if which == "known" else "")
                asked[f"{role or 'no token'}, {which} names"] = ask_all(relay, tokens.get(role), examples, seed)
        assert relay.ask("GET", "/healthz").status_code == 200
        assert not [line for line in relay.log() if line["level"] == "error"]
    return {**asked, "5xx": 0, "otherwise than described": 0}


def ask_all(relay, token, examples, seed):
    """How many requests were made; raises what was wrong with an answer."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{relay.url}/openapi.json", "--max-examples", str(examples),
        "--phases", "examples,coverage,fuzzing", "--exclude-checks", BEYOND_A_SCHEMA, "--seed", str(seed),
        "--request-timeout", "10", "--no-color", *(["-H", f"Authorization: Bearer {token}"] if token else []),
    ]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "support.schema_hooks", "PYTHONPATH": _path()}
    done = subprocess.run(
        command, cwd=relay.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return int(re.search(r"(\d+) generated", done.stdout).group(1))


def _path():
    return os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
