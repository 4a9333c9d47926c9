"""`relay invite --file … --kit …`: what each party needs to join, in a folder; the commands in it run as they are."""

import re
import shlex
import ssl
from pathlib import Path

import pytest
import trustme

from support.patients import CLASSES, split_patients, write_table
from support.processes import run
from support.relays import create_task, repshare, start_relay

HEAD, PATIENTS = split_patients()
LARGEST = (40, 50, 250, 4000, 0.25, 0.5, 0.6, 0.3, 0.5, 0.15)
INVITE = ("relay", "invite", "--task", "cells", "--file", "names.txt", "--kit", "kits", "--db", "relay.db")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = [[name, 0, most] for name, most in zip(HEAD, LARGEST, strict=False)]
    write_table(tmp_path / "columns.csv", ["name", "least", "largest"], columns)
    create_task(tmp_path, "cells", "--columns", "columns.csv", "--class-names", *CLASSES)
    Path("names.txt").write_text("north\nsouth\n\n")
    return tmp_path


def test_a_kit_runs_as_its_readme_says_once_the_data_are_there(folder, capsys):
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path("key.pem")
    issued.cert_chain_pems[0].write_to_path("cert.pem")
    safe = ssl.create_default_context(cafile="ca.pem")
    with start_relay(folder, "--rate", 0, "--certificate", "cert.pem", "--key", "key.pem", verify=safe) as relay:
        run(capsys, *INVITE, "--address", relay.url, "--ca", "ca.pem")
        for name in ("north", "south"):
            kit = folder / "kits" / name
            assert sorted(path.name for path in kit.iterdir()) == [
                "README.txt", "agreement.json", "ca.pem", "columns.csv", "party.py", "token"
            ]  # fmt: skip
            assert (kit / "token").stat().st_mode & 0o777 == 0o600
            write_table(kit / "data.csv", [*HEAD[:-1], "class"], PATIENTS[name])
            look, join = re.findall(r"^  repshare (.*)$", (kit / "README.txt").read_text(), re.MULTILINE)
            assert "Nothing has been sent now" in repshare(*shlex.split(look), cwd=kit)
            assert "1 rounds" in repshare(*shlex.split(join), "--accept-exposure", "--rounds", 1, cwd=kit)


def test_a_kit_has_the_options_that_its_task_was_created_for(folder, capsys):
    create_task(
        folder,
        "noisy",
        "--columns",
        "columns.csv",
        "--class-names",
        *CLASSES,
        "--samples-expected",
        272,
        "--members",
        3,
    )
    run(capsys, "relay", "invite", "--task", "noisy", *INVITE[4:])
    told = Path("kits/north/README.txt").read_text()
    assert told.count("--noise-shares 3 --epsilon 1.3 --adjacency add-remove\n") == 2


def test_kits_are_refused_in_one_line_before_anybody_is_invited(folder, capsys):
    create_task(folder, "features", "--classes", "2", "--dimension", "3")
    ways = {
        "have no agreement": ("relay", "invite", "--task", "features", *INVITE[4:]),
        "give a name; or --file": ("relay", "invite", "--task", "cells", "--file", "names.txt"),
        "for a --task": ("relay", "invite", *INVITE[4:]),
        "cannot name a client": INVITE,
        "each once": INVITE,
    }
    for told, command in ways.items():
        names = {"cannot name a client": "../x\n", "each once": "a\na\n"}.get(told, "a\nb\n")
        Path("names.txt").write_text(names)
        assert told in run(capsys, *command, expect=2).err
    Path("names.txt").write_text("a\nb\n")
    run(capsys, *INVITE)
    assert "kits/a already exists" in run(capsys, *INVITE, expect=2).err
