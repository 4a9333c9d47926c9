"""Three hospitals learn together by files that people carry: the same bytes, checks and classifier as by a relay."""

import hashlib
import json
import re
from contextlib import ExitStack

import pytest

from repshare import Policy, load_classifier
from repshare.cli.party.client import WorkOptions, make_client
from repshare.exchange.relay import RelayExchange
from repshare.party.state import State
from support.patients import CLASSES, split_patients, write_table
from support.processes import run
from support.relays import create_task, invite, prepare, start_relay

HEAD, PATIENTS = split_patients()
LARGEST = (40, 50, 250, 4000, 0.25, 0.5, 0.6, 0.3, 0.5, 0.15)
HOSPITALS = ("north", "south", "east")
PARTY = """
from pathlib import Path
from repshare import Party, Policy

def make(name):
    return lambda: Party(data=Path(__file__).with_name(f"{name}.csv"), label="diagnosis", policy=Policy(POLICY))

north, south, east = map(make, ("north", "south", "east"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An agreement, and a table and a party for each hospital."""
    monkeypatch.chdir(tmp_path)
    for name in HOSPITALS:
        write_table(tmp_path / f"{name}.csv", HEAD, PATIENTS[name])
    write_table(
        tmp_path / "columns.csv",
        ["name", "least", "largest"],
        [[name, 0, most] for name, most in zip(HEAD, LARGEST, strict=False)],
    )
    (tmp_path / "party.py").write_text(PARTY.replace("POLICY", "accept_exposure=True"))
    values = (
        "--columns",
        "columns.csv",
        "--class-names",
        *CLASSES,
        "--space",
        "fourier",
        "features=256",
        "--no-compared",
    )
    create_task(tmp_path, "cells", *values)
    (tmp_path / "cells.json").write_text(prepare("relay", "tasks", "describe", "cells", cwd=tmp_path))
    return tmp_path


def part(capsys, name, *options, **expect):
    given = ("--party", f"party.py:{name}", "--agreement", "cells.json", "--output", f"parts/{name}.safetensors")
    return run(capsys, "part", *given, *options, **expect)


def receive(capsys, name, **expect):
    return run(
        capsys, "receive", "total.safetensors", "--party", f"party.py:{name}", "--agreement", "cells.json", **expect
    )


def add_up(capsys, **expect):
    parts = [f"parts/{name}.safetensors" for name in HOSPITALS]
    return run(capsys, "total", *parts, "--agreement", "cells.json", "--output", "total.safetensors", **expect)


def test_three_hospitals_have_the_relays_classifier_by_files_to_the_bit(folder, capsys):
    (folder / "parts").mkdir()
    for _ in range(2):
        for name in HOSPITALS:
            part(capsys, name)
        add_up(capsys)
        told = [receive(capsys, name).out for name in HOSPITALS]
    number = r"[\d.]+%"
    short = rf"{number} \(balanced {number}, (benign|malignant) {number}\)"
    assert re.search(rf"south after round 2: alone +{short}, with the others +{short} \(own samples left", told[1])
    for name, state in by_relay(folder, rounds=2).items():
        kept = folder / f"repshare-files-{name}" / "classifier.safetensors"
        assert kept.read_bytes() == (state.folder.path / "classifier.safetensors").read_bytes()
    assert load_classifier(kept)("north.csv") == load_classifier(kept)("north.csv")


def by_relay(folder, rounds):
    """The same at a relay: in each round all collect, all train, all publish."""
    states = {}
    with start_relay(folder, "--rate", 0) as relay, ExitStack() as stack:
        for name in HOSPITALS:
            token = invite(folder, name, "--task", "cells")
            exchange = stack.enter_context(RelayExchange(relay.url, token=token))
            there, work = exchange.describe(), WorkOptions(agreement=folder / "cells.json")
            client = make_client(
                f"party.py:{name}", name, work, Policy(), there.agreed, folder=folder / f"relay-{name}"
            )
            client.exchange = exchange
            states[name] = State(folder / f"relay-{name}", client, there)
        for _ in range(rounds):
            for state in states.values():
                state.client.collect()
                state.client.train()
            for state in states.values():
                assert state.client.publish(state.client.release()), (
                    state.client.name,
                    state.client.round_number,
                    state.client.trouble,
                )
        for state in states.values():
            state.refresh()
    return states


def test_a_part_is_what_its_manifest_says_and_is_the_same_until_a_total_comes(folder, capsys):
    (folder / "parts").mkdir()
    part(capsys, "south")
    body, manifest = ((folder / f"parts/south{end}").read_bytes() for end in (".safetensors", ".json"))
    told = json.loads(manifest)
    assert told["sha256"] == hashlib.sha256(body).hexdigest()
    assert (told["client"], told["round"], told["samples"], told["epsilon"]) == ("south", 1, 159, None)
    part(capsys, "south")
    assert (folder / "parts/south.safetensors").read_bytes() == body
    (line,) = map(json.loads, (folder / "repshare-files-south/audit.jsonl").read_text().splitlines())
    assert (line["sha256"], line["counts"], line["task"]) == (told["sha256"], [147, 12], "files")


def test_parts_are_checked_as_at_a_relay(folder, capsys):
    (folder / "parts").mkdir()
    (folder / "party.py").write_text(PARTY.replace("POLICY", ""))
    assert "this would show who is among your samples" in part(capsys, "north", expect=2).err
    assert "repshare-files-north has made no part" in receive(capsys, "north", expect=2).err
    for name in HOSPITALS:
        part(capsys, name, "--accept-exposure")
    (folder / "parts/east.safetensors").write_bytes(b"no part")
    assert add_up(capsys, expect=2).err.startswith("repshare: east: ")
    assert not (folder / "total.safetensors").exists()
    (folder / "total.safetensors").write_bytes(b"no total")
    assert receive(capsys, "north", expect=2).err.count("\n") == 1
