"""Vectors kept on disk: the same bits for any process, bounded, and only of data that anyone may have."""

import os
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch

from repshare.config import Run, Setting
from repshare.errors import ConfigError
from repshare.simulation import Inline, simulate
from repshare.simulation.workers import MEMORY
from repshare.spaces import Patches
from repshare.spaces import disk as disks
from repshare.spaces.disk import VARIABLE, Disk, Embedded
from repshare.spaces.memory import Memory

SPACE = Patches((1, 8, 8), sizes=(3, 4), filters=24)
SIZE = 4 * 60 * SPACE.dimension


@pytest.fixture(scope="module")
def images():
    return torch.rand(6, 60, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def files(folder):
    return sorted(folder.glob("*"))


def test_another_process_finds_the_same_bits_and_says_what_was_spared(tmp_path, images):
    first, second = (Memory(disk=Disk(tmp_path, 1 << 30)) for _ in range(2))
    made = first.embed(SPACE, images[0])
    assert first.spared == 0
    assert len(files(tmp_path)) == 1
    assert torch.equal(second.embed(SPACE, images[0]), made)
    assert torch.equal(made, SPACE(images[0]))
    assert second.spared > 0


def test_other_inputs_other_spaces_and_other_code_have_their_own_files(tmp_path, images, monkeypatch):
    def embed(space, inputs):
        memory = Memory(disk=Disk(tmp_path, 1 << 30))
        memory.embed(space, inputs)
        return memory.spared

    assert embed(SPACE, images[0]) == embed(SPACE, images[1]) == embed(replace(SPACE, seed=1), images[0]) == 0
    assert embed(SPACE, images[0]) > 0
    monkeypatch.setattr(disks, "_code", lambda: "changed")
    assert embed(SPACE, images[0]) == 0


def test_the_least_recently_used_files_are_removed_first(tmp_path, images):
    memory = Memory(0, Disk(tmp_path, 4 * SIZE))
    for place, batch in enumerate(images[:3]):
        memory.embed(SPACE, batch)
        for path in files(tmp_path):  # as if time had passed
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9 * (3 - place)))
    memory.embed(SPACE, images[0])
    assert memory.spared > 0
    for batch in images[3:5]:
        memory.embed(SPACE, batch)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 4 * SIZE
    found = []
    for batch in images[:5]:
        memory = Memory(0, Disk(tmp_path, 1 << 30))
        memory.embed(SPACE, batch)
        found.append(memory.spared > 0)
    assert found == [True, False, False, True, True]


@pytest.mark.parametrize(
    "spoil", [lambda kept: kept[:-40], lambda kept: kept[:-1] + bytes([kept[-1] ^ 1]), lambda _: b""]
)
def test_a_damaged_file_is_removed_and_computed_again(tmp_path, images, spoil):
    Memory(disk=Disk(tmp_path, 1 << 30)).embed(SPACE, images[0])
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    memory = Memory(disk=Disk(tmp_path, 1 << 30))
    assert torch.equal(memory.embed(SPACE, images[0]), SPACE(images[0]))
    assert memory.spared == 0
    assert path.stat().st_size == len(whole)


def _embed(folder, images, line):
    torch.set_num_threads(1)
    memory = Memory(0, Disk(folder, 3 * SIZE))
    for batch in (*images, *images):
        if not torch.equal(memory.embed(SPACE, batch), SPACE(batch)):
            line.send("other bits")
    line.send("done")


def test_processes_that_share_a_folder_and_remove_each_others_files_have_the_same_bits(tmp_path, images):
    context = get_context("fork")
    lines = [context.Pipe() for _ in range(3)]
    processes = [context.Process(target=_embed, args=(tmp_path, images, theirs)) for _, theirs in lines]
    for process in processes:
        process.start()
    assert [ours.recv() for ours, _ in lines] == ["done"] * 3
    for process in processes:
        process.join()
    assert all(path.suffix == ".features" for path in files(tmp_path))


def test_a_folder_that_cannot_be_written_is_told_once_and_changes_nothing(tmp_path, images):
    (tmp_path / "file").touch()
    memory = Memory(0, Disk(tmp_path / "file" / "in it", 1 << 30))
    with pytest.warns(UserWarning, match="features will be computed again next time"):
        assert torch.equal(memory.embed(SPACE, images[0]), SPACE(images[0]))
    assert torch.equal(memory.embed(SPACE, images[1]), SPACE(images[1]))


def test_only_features_of_builtin_data_sets_are_left_on_disk(tmp_path, splits, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "1")
    setting = Setting(dataset="digits", samples=120, clients=2, rounds=1, model=("mlp",))

    def leave(data):
        MEMORY._batches.clear()
        with Inline() as workers:
            accuracy = [record.test_accuracy for record in next(simulate(Run("CS", 0, setting), data, workers))]
        return accuracy, len(files(tmp_path / "repshare" / "features")) if (tmp_path / "repshare").exists() else 0

    own, none = leave(replace(splits, builtin=False))
    assert none == 0
    builtin, some = leave(splits)
    assert some > 0
    assert builtin == own
    assert leave(splits) == (builtin, some)  # from the files
    monkeypatch.setenv(VARIABLE, "-1")
    with pytest.raises(ConfigError, match="REPSHARE_FEATURES_GB is '-1'"):
        leave(splits)


def test_a_batch_beyond_the_limit_is_not_written(tmp_path):
    disk = Disk(tmp_path, 100)
    disk.write("key", Embedded(torch.zeros(100, 1000), 1.0))
    assert disk.read("key") is None
    assert not files(tmp_path)
