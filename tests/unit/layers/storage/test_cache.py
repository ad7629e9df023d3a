# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from quickthaw.layers.errors import (
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
    StorageTimeoutError,
)
from quickthaw.layers.storage import cache as cache_module
from quickthaw.layers.storage.cache import Cache
from quickthaw.layers.storage.cached_file import CachedFile, MemoryFile
from quickthaw.layers.storage.storage import StoredFile

DATA = bytes(range(256)) * 40
DIGEST, OTHER = "a" * 64, "b" * 64
URL = "s3://models/smol/layer-000.safetensors"


class Source:
    """What is fetched, and how often."""

    def __init__(self, data: bytes = DATA) -> None:
        self.n_fetches = 0
        self._data = data

    def fetch(self, descriptor: int) -> None:
        self.n_fetches += 1
        os.pwrite(descriptor, self._data, 0)


def _open(cache: Cache, source: Source, digest: str = DIGEST) -> StoredFile:
    stored = cache.open(digest, len(DATA), URL, source.fetch)
    with stored.file as file:
        assert file.read() == DATA
    return stored


def test_a_file_is_fetched_once_and_by_nobody_else(tmp_path: Path) -> None:
    source = Source()
    first = _open(Cache(str(tmp_path / "cache"), None), source)
    second = _open(Cache(str(tmp_path / "cache"), None), source)

    assert source.n_fetches == 1
    assert (first.path, second.path) == (URL, URL)
    assert os.listdir(tmp_path / "cache" / "shards") == [DIGEST]
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(descriptor: int) -> None:
        os.pwrite(descriptor, b"half", 0)
        raise StorageError("S3 does not give an object", where=URL)

    cache = Cache(str(tmp_path), None)
    with pytest.raises(StorageError):
        cache.open(DIGEST, len(DATA), URL, fail)

    assert os.listdir(tmp_path / "shards") == []
    _open(cache, Source())


def test_what_a_killed_process_left_is_fetched_anew(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir(mode=0o700)
    (tmp_path / "shards" / f"{DIGEST}.part").write_bytes(bytes(len(DATA) + 1))

    _open(Cache(str(tmp_path), None), Source())

    assert os.listdir(tmp_path / "shards") == [DIGEST]


def test_a_file_that_was_cut_short_is_fetched_anew(tmp_path: Path) -> None:
    source = Source()
    cache = Cache(str(tmp_path), None)
    _open(cache, source)
    os.truncate(tmp_path / "shards" / DIGEST, 10)

    _open(cache, source)

    assert source.n_fetches == 2


def test_whoever_wants_a_file_that_is_being_fetched_waits_for_it(tmp_path: Path) -> None:
    source, has_begun, may_end = Source(), threading.Event(), threading.Event()

    def fetch(descriptor: int) -> None:
        has_begun.set()
        assert may_end.wait(30)
        source.fetch(descriptor)

    threads = [
        threading.Thread(
            target=lambda: Cache(str(tmp_path), None).open(DIGEST, len(DATA), URL, fetch).file.close()
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert has_begun.wait(30)
    may_end.set()
    for thread in threads:
        thread.join()

    assert source.n_fetches == 1


def test_nobody_waits_for_a_process_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_STUCK_S", 0.05)
    is_late = threading.Event()

    def stand_still(descriptor: int) -> None:
        del descriptor
        with pytest.raises(StorageTimeoutError, match=URL):
            Cache(str(tmp_path), None).open(DIGEST, len(DATA), URL, Source().fetch)
        is_late.set()

    Cache(str(tmp_path), None).open(DIGEST, len(DATA), URL, stand_still).file.close()

    assert is_late.is_set()


def test_beyond_the_limit_files_are_kept_in_memory_which_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = Cache(str(tmp_path), len(DATA))
    first, second = _open(cache, Source()), _open(cache, Source(), OTHER)
    _open(cache, Source(), OTHER)

    assert isinstance(first, CachedFile)
    assert isinstance(second, MemoryFile)
    assert os.listdir(tmp_path / "shards") == [DIGEST]
    assert capfd.readouterr().err.count("no room") == 1


def test_another_sets_files_make_room(tmp_path: Path) -> None:
    _open(Cache(str(tmp_path), None), Source(), OTHER)
    _open(Cache(str(tmp_path), len(DATA)), Source())

    assert os.listdir(tmp_path / "shards") == [DIGEST]


def test_a_cache_that_others_may_write_is_not_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o777)

    assert isinstance(_open(Cache(str(tmp_path), None), Source()), MemoryFile)
    assert "belongs to, or can be written by, somebody else" in capfd.readouterr().err


def test_a_cache_that_cannot_be_is_not_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert isinstance(_open(Cache(str(tmp_path / "file" / "cache"), None), Source()), MemoryFile)
    assert "Not a directory" in capfd.readouterr().err


def test_a_file_in_memory_keeps_its_size(tmp_path: Path) -> None:
    stored = Cache(str(tmp_path), 0).open(DIGEST, len(DATA), URL, Source().fetch)
    with stored.file as file, pytest.raises(PermissionError):
        os.truncate(file.fileno(), 0)
    stored.check_unchanged()
    stored.discard()


def test_a_discarded_file_is_given_to_nobody_any_more(tmp_path: Path) -> None:
    source = Source()
    cache = Cache(str(tmp_path), None)
    _open(cache, source).discard()
    again = _open(cache, source)

    assert source.n_fetches == 2
    again.check_unchanged()


def test_pushed_out_of_the_cache_a_file_is_what_it_was(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path), None)
    stored = cache.open(DIGEST, len(DATA), URL, Source().fetch)
    with stored.file:  # as a map would, it keeps the file
        os.unlink(tmp_path / "shards" / DIGEST)
        stored.check_unchanged()
        _open(cache, Source())
        stored.check_unchanged()
        stored.discard()

    assert os.listdir(tmp_path / "shards") == [DIGEST]  # which is another one


def test_written_to_in_the_cache_it_is_not(tmp_path: Path) -> None:
    stored = _open(Cache(str(tmp_path), None), Source())
    cached = tmp_path / "shards" / DIGEST
    changed_ns = cached.stat().st_mtime_ns
    cached.chmod(0o600)
    while cached.stat().st_mtime_ns == changed_ns:  # the kernel's clock ticks
        cached.write_bytes(DATA)
        time.sleep(0.001)

    with pytest.raises(ShardReplacedError, match=URL):
        stored.check_unchanged()
    os.truncate(cached, 3)
    with pytest.raises(ShardTruncatedError, match=URL):
        stored.check_unchanged()
