# SPDX-License-Identifier: Apache-2.0
"""One shard's states, over a storage that fails as often as it is told to, and counts."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

from quickthaw.layers import manifest
from quickthaw.layers.config import Verify
from quickthaw.layers.content import Contents
from quickthaw.layers.errors import ShardError, ShardMissingError, ShardReplacedError, StorageError
from quickthaw.layers.shard import Shard, ShardState
from quickthaw.layers.storage.directory import Directory
from quickthaw.layers.storage.storage import StoredFile
from quickthaw.layers.verification import Verifier
from tests import shards


class Unreliable:
    """A directory whose files cannot be opened the first few times."""

    def __init__(self, path: Path, failures: list[ShardError] | None = None, *, copies: bool = False) -> None:
        self.location = str(path)
        self.failures = failures or []
        self.n_opened = 0
        self._directory = Directory(path, copies=copies)

    def read(self, name: str, limit_bytes: int) -> bytes:
        return self._directory.read(name, limit_bytes)

    def open(self, name: str, size_bytes: int, sha256: str) -> StoredFile:
        self.n_opened += 1
        if self.failures:
            raise self.failures.pop()
        return self._directory.open(name, size_bytes, sha256)

    def release(self) -> None:
        """Nothing is held."""


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make(tmp_path)


def contents(verify: Verify = Verify.ALWAYS) -> Contents:
    return Contents(Verifier(verify, "/nonexistent"), lambda: None)


def layer(storage: Unreliable) -> Shard:
    return Shard(storage, manifest.read(storage.location).shards[1])


def test_it_goes_from_pending_to_ready_to_evicted_and_no_other_way(shard_set: Path) -> None:
    shard = layer(Unreliable(shard_set))
    assert shard.state is ShardState.PENDING
    with pytest.raises(ShardError, match="pending cannot become evicted"):
        shard.evict()

    shard.load(contents())
    assert shard.state is ShardState.READY
    shard.evict()
    assert shard.state is ShardState.EVICTED

    with pytest.raises(ShardError, match="evicted cannot become loading"):
        shard.load(contents())
    with pytest.raises(ShardError, match="evicted cannot become evicted"):
        shard.evict()


def test_a_storage_that_fails_twice_is_asked_a_third_time(shard_set: Path) -> None:
    storage = Unreliable(shard_set, [StorageError("flaky")] * 2)
    shard = layer(storage)

    shard.load(contents())

    assert (shard.state, storage.n_opened) == (ShardState.READY, 3)


def test_a_storage_that_goes_on_failing_is_not_asked_for_ever(shard_set: Path) -> None:
    storage = Unreliable(shard_set, [StorageError("broken")] * 3)
    shard = layer(storage)

    with pytest.raises(StorageError, match="broken"):
        shard.load(contents())
    assert (shard.state, storage.n_opened) == (ShardState.PENDING, 3)

    shard.load(contents())
    assert shard.state is ShardState.READY


def test_what_will_not_be_better_is_told_at_once(shard_set: Path) -> None:
    storage = Unreliable(shard_set, [ShardMissingError("gone")])
    shard = layer(storage)

    with pytest.raises(ShardMissingError, match="gone"):
        shard.load(contents())
    assert (shard.state, storage.n_opened) == (ShardState.PENDING, 1)


def test_threads_that_need_one_shard_load_it_once(shard_set: Path) -> None:
    storage = Unreliable(shard_set)
    shard, together = layer(storage), Barrier(8)
    found = []

    def need() -> None:
        together.wait()
        shard.load(contents())
        found.append(shard.tensor("qkv"))

    threads = [Thread(target=need) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(found), storage.n_opened) == (8, 1)
    assert all(each is found[0] for each in found)


def test_an_evicted_shard_leaves_the_address_space_and_comes_again(shard_set: Path) -> None:
    def is_mapped() -> bool:
        return str(shard_set) in Path("/proc/self/maps").read_text()

    shard = layer(Unreliable(shard_set))
    shard.load(contents())
    before = shard.tensor("qkv").copy()
    assert is_mapped()
    shard.evict()
    assert not is_mapped()

    again = shard.renewed(contents())
    again.load(contents())

    assert np.array_equal(again.tensor("qkv"), before)


def test_where_no_digest_tells_a_file_that_was_replaced_does_not_come_again(shard_set: Path) -> None:
    shard = layer(Unreliable(shard_set))
    shard.load(contents(Verify.NEVER))
    shard.evict()
    path = shard_set / "layer-000.safetensors"
    path.write_bytes(path.read_bytes())

    with pytest.raises(ShardReplacedError):
        shard.renewed(contents(Verify.NEVER))
    shard.renewed(contents(Verify.FIRST))


def test_a_copy_is_verified_and_survives_what_happens_to_its_file(shard_set: Path) -> None:
    shard = layer(Unreliable(shard_set, copies=True))
    shard.load(contents())
    before = shard.tensor("down").copy()

    os.truncate(shard_set / "layer-000.safetensors", 0)

    assert np.array_equal(shard.tensor("down"), before)
    assert not shard.tensor("down").flags.writeable
    assert str(shard_set) not in Path("/proc/self/maps").read_text()
    assert shard.resident_bytes() == shard.size_bytes
    with pytest.raises(ShardError, match="wrong size"):
        shard.check_unchanged()
