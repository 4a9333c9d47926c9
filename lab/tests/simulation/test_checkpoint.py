"""Interrupted or not, the same bits; and whatever happens to a checkpoint, the last good one is kept."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest
import torch

from repshare.errors import CheckpointError
from repshare_lab.config import Run, Setting
from repshare_lab.experiments.comparison import carry_out
from repshare_lab.results.records import RunFolder
from repshare_lab.simulation import Checkpoint, Inline, simulate
from support.processes import Process
from support.simulations import bits, plain, resumed_bits
from support.warm import run_warm

SMALL = Setting(dataset="digits", samples=120, clients=4, rounds=6, eval_every=2, model=("lenet5",))
KILLS = 2


@pytest.fixture(scope="module")
def workers():
    with Inline() as workers:
        yield workers


def test_dropout_goes_on_where_it_was(splits, workers, tmp_path):
    (tmp_path / "drop.py").write_text(
        "from torch import nn\n"
        "def model(channels, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, classes))\n"
    )
    run = Run("IL", 0, replace(SMALL, model=(f"{tmp_path}/drop.py:model",)))
    assert resumed_bits(run, splits, workers, tmp_path / "c", after=3) == bits(run, splits, workers)[3:]


def test_a_checkpoint_keeps_no_more_files_than_it_needs(splits, workers, tmp_path):
    run = Run("RS", 0, replace(SMALL, clients=4))
    with closing(simulate(run, splits, workers, Checkpoint(tmp_path / "c", run), checkpoint_every=1)) as rounds:
        for _ in islice(rounds, 5):
            pass
    assert len([path for path in (tmp_path / "c").rglob("*") if path.is_file()]) == 4 + 1 + 1  # server, manifest


def stopped(tmp_path, splits, workers, run, after=3):
    folder = tmp_path / "checkpoint"
    with closing(simulate(run, splits, workers, Checkpoint(folder, run))) as rounds:
        for _ in islice(rounds, after):
            pass
    return folder


def test_a_checkpoint_of_another_configuration_is_refused(splits, workers, tmp_path):
    folder = stopped(tmp_path, splits, workers, Run("RS", 0, SMALL))
    for other in (Run("FD", 0, SMALL), Run("RS", 1, SMALL), Run("RS", 0, replace(SMALL, eval_every=3))):
        with pytest.raises(CheckpointError, match="another run"):
            Checkpoint(folder, other)
    Checkpoint(folder, Run("RS", 0, SMALL))


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-9] + b"x" + b[-8:]])
@pytest.mark.parametrize("which", ["0-3.state", "server-3.state", "manifest.json"])
def test_a_damaged_checkpoint_is_told_and_never_used(splits, workers, tmp_path, which, damage):
    run = Run("RS", 0, SMALL)
    (file,) = stopped(tmp_path, splits, workers, run).rglob(which)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged.*remove"):
        plain(simulate(run, splits, workers, Checkpoint(tmp_path / "checkpoint", run)))


def test_what_could_not_be_recorded_is_done_again(splits, workers, tmp_path):
    run = Run("IL", 0, replace(SMALL, model=("mlp",), rounds=3))

    def carry_on(name, spoil=lambda path: None):
        folder = RunFolder(tmp_path / name, {}, resume=True)
        for _ in carry_out([run], splits, folder, workers, checkpoint_every=1):
            spoil(folder.records.path)
        return [(line["round"], line["client"], line["ce"]) for line in folder.records.read()]

    whole = carry_on("whole")
    with pytest.raises(IsADirectoryError):
        carry_on("cut", lambda path: (path.rename(tmp_path / "aside"), path.mkdir()))
    (tmp_path / "cut/records.jsonl").rmdir()
    (tmp_path / "aside").rename(tmp_path / "cut/records.jsonl")
    assert carry_on("cut") == whole


FULL_DISK = """
import sys
from pathlib import Path
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare.errors import CheckpointError
from repshare_lab.simulation import Checkpoint, Inline, simulate
disk = Path(sys.argv[1])
run = Run("RS", 0, Setting(dataset="digits", samples=120, clients=4, rounds=6, model=("lenet5",)))
with Inline() as workers:
    rounds = simulate(run, load("digits"), workers, Checkpoint(disk / "c", run), checkpoint_every=1)
    next(rounds), next(rounds)  # asking for the second round takes the checkpoint of the first
    (disk / "filler").write_bytes(b"x" * (900 << 10))  # four states of 390 kB no longer fit beside the old ones
    try:
        next(rounds)
    except CheckpointError as error:
        print(error)
    (disk / "filler").unlink()
    print("kept", Checkpoint(disk / "c", run).manifest.round)
    print("rounds", sum(1 for _ in simulate(run, load("digits"), workers, Checkpoint(disk / "c", run))))
"""


def test_a_full_disk_is_told_and_the_last_good_checkpoint_kept(tmp_path):
    """On a file system of 3 MB in a mount namespace of its own."""
    script = f"mount -t tmpfs -o size=3m none {tmp_path} && exec {sys.executable} -c '{FULL_DISK}' {tmp_path}"
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    done = subprocess.run([*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told, kept, rounds = done.stdout.splitlines()
    assert "No space left on device; the last checkpoint is untouched" in told
    assert kept == "kept 1"
    assert rounds == "rounds 5"


def records(folder):
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_sigkill_at_random_moments_again_and_again_changes_no_bit(tmp_path):
    command = [
        "compare", "--dataset", "digits", "--samples", "120", "--clients", "4", "--rounds", "60", "--methods", "FL",
        "RS", "--checkpoint-every", "3", "--dropout", "0.2",
    ]  # fmt: skip
    run_warm(*command, "--name", "whole", "--workers", "0", cwd=tmp_path).check_returncode()
    rng, path = random.Random(0), tmp_path / "runs/cut/records.jsonl"
    whole = (tmp_path / "runs/whole/records.jsonl").stat().st_size
    for kill in range(KILLS + 1):
        options = ("--name", "cut", "--workers", kill % 3 + 1, "--resume")
        process = Process(*command, *options, cwd=tmp_path, name="cut").process
        if kill == KILLS:
            break
        start = path.stat().st_size if path.exists() else 0
        reach = max(start + 1, whole * (kill + rng.random()) / (KILLS + 1))
        deadline = time.monotonic() + 60
        while not path.exists() or path.stat().st_size < reach:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert process.wait(timeout=60) == 0
    assert records(tmp_path / "runs/cut") == records(tmp_path / "runs/whole")
    assert not list((tmp_path / "runs/cut").rglob("*.state"))


def test_a_clients_state_holds_no_code(splits, workers, tmp_path):
    """Loading a checkpoint runs nothing that was put into it."""
    run = Run("IL", 0, SMALL)
    checkpoint = Checkpoint(stopped(tmp_path, splits, workers, run), run)
    import io
    import pickle
    import zlib

    from repshare_lab.simulation.checkpoint import SavedState

    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/harm",))

    kept = io.BytesIO()
    torch.save({"round": Evil()}, kept)
    state = kept.getvalue()
    (file,) = (tmp_path / "checkpoint").rglob("0-3.state")
    file.write_bytes(state)
    checkpoint.manifest.clients[0] = SavedState(3, len(state), zlib.crc32(state))
    with pytest.raises(pickle.UnpicklingError):
        plain(simulate(run, splits, workers, checkpoint))
    assert not (tmp_path / "harm").exists()
