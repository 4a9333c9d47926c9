"""The examples in deploy/: their commands, ports, paths, variables and users are those of the relay and its image."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from repshare.cli.main import COMMANDS, CommandGroup
from repshare.cli.parsing import Parser
from repshare.cli.relay.database import AUDIT_VARIABLE, VARIABLE
from repshare.relay.app import ROUTES

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
SERVICE = COMPOSE["services"]["relay"]
POD = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
VARIABLES = {VARIABLE, AUDIT_VARIABLE}


def check(command):
    """Fail unless this is a command of repshare's, with options that it has."""
    program, *words = command
    assert program == "repshare"
    chosen = CommandGroup("", COMMANDS)
    while isinstance(chosen, CommandGroup):
        chosen = chosen.commands[words.pop(0)]
    Parser(" ".join(command[1 : len(command) - len(words)]), chosen.load()).parse_args(words)
    return dict(zip(words, [*words[1:], ""], strict=True))


def commands_in(text):
    return [shlex.split(found) for found in re.findall(r"\b(repshare relay .*?)(?: *\(.*)?$", text, re.MULTILINE)]


@pytest.mark.parametrize("file", ["Containerfile", "compose.yaml", "kubernetes.yaml", "repshare-relay.service"])
def test_every_command_in_them_is_one_that_exists(file):
    text = (DEPLOY / file).read_text().replace("/opt/repshare/bin/", "")
    entry, usual = re.search(r"ENTRYPOINT (.*)\nCMD (.*)", IMAGE).groups()
    served = {"compose.yaml": SERVICE["command"], "kubernetes.yaml": CONTAINER["args"]}.get(file, yaml.safe_load(usual))
    options = check([*yaml.safe_load(entry), *served])
    assert options["--port"] == "8000"
    for command in commands_in(text):
        check(command)
    assert commands_in(text) or file == "Containerfile"


def test_ports_paths_and_variables_fit_together():
    assert "EXPOSE 8000" in IMAGE
    assert SERVICE["ports"] == ["127.0.0.1:8000:8000"], "beyond this machine it needs TLS"
    assert SERVICE["environment"].keys() == KUBERNETES["ConfigMap"]["data"].keys() == VARIABLES
    for variables in (SERVICE["environment"], KUBERNETES["ConfigMap"]["data"]):
        assert Path(variables[VARIABLE]).parent == Path("/data")
    assert "VOLUME /data" in IMAGE
    assert [volume.split(":")[1] for volume in SERVICE["volumes"]] == ["/data"]
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == 8000
    assert KUBERNETES["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    options = check(["repshare", "relay", *CONTAINER["args"]])
    assert {Path(options[name]).parent for name in ("--certificate", "--key")} == {Path(mounts["tls"])}
    (claim,) = KUBERNETES["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert mounts.keys() == {each["name"] for each in POD["volumes"]} | {claim["metadata"]["name"]}
    labels = KUBERNETES["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    assert KUBERNETES["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert KUBERNETES["StatefulSet"]["spec"]["replicas"] == 1


def test_probes_ask_what_the_relay_answers():
    answered = {path for path, ways in ROUTES.items() if "GET" in ways}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = CONTAINER[probe]["httpGet"]
        assert asked["path"] in answered
        assert (asked["port"], asked["scheme"]) == (CONTAINER["ports"][0]["name"], "HTTPS")


def test_nothing_runs_as_root_or_writes_beside_its_volume():
    user = int(re.search(r"useradd .*--uid (\d+)", IMAGE).group(1))
    context, own = POD["securityContext"], CONTAINER["securityContext"]
    assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (user, user, True)
    assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
    assert own["capabilities"]["drop"] == SERVICE["cap_drop"] == ["ALL"]
    assert SERVICE["read_only"] is True
    assert "USER repshare" in IMAGE
    assert POD["automountServiceAccountToken"] is False
