# SPDX-License-Identifier: Apache-2.0
"""A shard set: opened with the embedding alone, each layer's shard brought when it is first needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from quickthaw.layers import manifest as manifest_file
from quickthaw.layers import memory
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.content import Contents
from quickthaw.layers.errors import ShardError
from quickthaw.layers.manifest import TOKENIZER_FILE_NAME, Manifest
from quickthaw.layers.matrix import Int4, Int8, tiles
from quickthaw.layers.prefetch import Pace, Prefetcher
from quickthaw.layers.residency import TILE_BYTES, Budget, plan
from quickthaw.layers.shard import Shard, ShardState
from quickthaw.layers.spans import Spans
from quickthaw.layers.storage.storage import Storage, StoredFile, is_remote, open_storage
from quickthaw.layers.verification import Verifier

if TYPE_CHECKING:
    from _typeshed import StrPath

    from quickthaw.layers.arrays import Weight

_HELD = (ShardState.READY, ShardState.LOADING)


class ShardSet:
    """The shards of one model. Used from one thread at a time; others read ahead for it."""

    def __init__(self, storage: Storage, manifest: Manifest, verifier: Verifier, spans: Spans) -> None:
        self.manifest = manifest
        self.spans = spans
        self.bytes_loaded = 0
        self.n_evicted = 0
        self._storage = storage
        self._contents = Contents(verifier, self._begin_reading_ahead)
        self._shards = [Shard(storage, entry) for entry in manifest.shards]
        self._sizes = [entry.size_bytes for entry in manifest.shards[1:]]
        self._tokenizer: StoredFile | None = None  # once it was asked for
        self._is_closed = False
        self._lock = Lock()
        self._prefetcher, self._pace = Prefetcher(), Pace()
        self._reads_ahead = is_remote(storage.location)  # else once storage had to be waited for
        self._budget: Budget | None = None
        self._capacity_bytes: int | None = None  # for layers; None: all of them fit
        self._current = 0
        self._returned_s = 0.0

    @classmethod
    def open(cls, location: StrPath, config: LayersConfig) -> ShardSet:
        """Reads the manifest and maps the embedding shard; no other file is looked at unless preloaded.

        Raises: ManifestError, ShardError, MemoryBudgetError.
        """
        spans = Spans()
        with spans.timed("manifest"):
            storage = open_storage(location, config)
            manifest = manifest_file.read_from(storage)
        shards = cls(storage, manifest, Verifier(config.verify, config.cache, spans), spans)
        shards._load(0)
        shards._bound(memory.limit_bytes() if config.memory_mib is None else config.memory_mib << 20)
        if config.preload_percent:
            with spans.timed("preload"):
                shards._preload(config.preload_percent / 100)
        return shards

    @property
    def bytes_mapped(self) -> int:
        """Bytes of the shards that are READY."""
        return sum([shard.size_bytes for shard in self._shards if shard.state is ShardState.READY])

    @property
    def embedding(self) -> Shard:
        """The embedding shard, READY, with the set's other mapped file checked as well.

        Raises: ShardError.
        """
        self.check_unchanged()
        if self._shards[0].has_to_be_read:
            self._shards[0].read_ahead(self._contents)
        return self._shards[0]

    def tiles(self, matrix: Weight | Int8 | Int4) -> Iterator[Weight | Int8 | Int4]:
        """A matrix of the embedding shard: whole, or where memory is short in runs of rows, each of which is
        let go when the next one is asked for."""
        if self._capacity_bytes is None:
            yield matrix
            return
        for tile in tiles(matrix, TILE_BYTES):
            yield tile
            self._shards[0].let_go()

    def check_unchanged(self) -> None:
        """A system call for each file that is mapped from the start: the embedding, the tokenizer's tables.

        Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError.
        """
        self._ready(0)
        if self._tokenizer is not None:
            self._tokenizer.check_unchanged()

    def layer(self, index: int) -> Shard:
        """The shard of one layer, READY: brought when first asked for, afterwards checked to be unchanged.

        It stays so until another layer is asked for.
        Raises: ShardError.
        """
        self._pace.computed(time.monotonic() - self._returned_s)
        self._make_room(index)
        shard = self._ready(1 + index)
        self._returned_s = time.monotonic()
        return shard

    def open_tokenizer(self) -> StoredFile | None:
        """The tokenizer's tables, verified as a shard is, and watched from here on; None without a tokenizer.

        The file is the caller's to close.

        Raises: ShardError.
        """
        entry = self.manifest.tokenizer
        if entry is None:
            return None
        stored = self._storage.open(TOKENIZER_FILE_NAME, entry["size_bytes"], entry["sha256"])
        try:
            self._contents.verify(stored, entry["sha256"])
        except BaseException:
            stored.file.close()
            raise
        self._tokenizer = stored
        return stored

    def read_ahead(self, limit_bytes: int | None, may_go_on: Callable[[], bool]) -> int:
        """Verify, map and read every shard, so that no request has to wait for it; the bytes that were read.

        Not beyond `limit_bytes`, where what is read last would push out what is needed first.
        Raises: ShardError.
        """
        before_bytes, size_bytes = self._contents.bytes_read, 0
        for index in range(len(self._shards)):
            if not may_go_on():
                break
            shard = self._ready(0) if index == 0 else self.layer(index - 1)
            size_bytes += shard.size_bytes
            if limit_bytes is None or size_bytes <= limit_bytes:
                shard.read_ahead(self._contents)
        return self._contents.bytes_read - before_bytes

    def release(self) -> None:
        """Lets go of what a capture cannot hold: threads, and connections of the storage."""
        self._prefetcher.release()
        self._storage.release()

    def resident_bytes(self) -> int | None:
        """How much of the mapped shards is in memory; None where the kernel does not say."""
        found = [shard.resident_bytes() for shard in self._shards]
        known = [size_bytes for size_bytes in found if size_bytes is not None]
        return sum(known) if len(known) == len(found) else None

    def close(self) -> None:
        """Lets go of every shard."""
        self.release()
        for shard in self._shards:
            self._evict(shard)
        self._tokenizer = None
        self._is_closed = True

    def _ready(self, index: int) -> Shard:
        if self._is_closed:
            raise ShardError("the shard set is closed", where=self._storage.location)
        if self._shards[index].state is ShardState.READY:
            self._check(self._shards[index])
        else:
            self._load(index)
        return self._shards[index]

    def _load(self, index: int) -> None:
        shard = self._unevicted(index)
        begin_s = time.monotonic()
        with self.spans.timed(f"{shard.name} map", shard.size_bytes):
            # Of the embedding a few rows are gathered; if it is the head as well, it is needed last.
            is_mine = shard.load(self._contents, reads=index > 0)
        if is_mine:
            self._pace.loaded(time.monotonic() - begin_s)
            with self._lock:
                self.bytes_loaded += shard.size_bytes

    def _unevicted(self, index: int) -> Shard:
        with self._lock:
            if self._shards[index].state is ShardState.EVICTED:
                self._shards[index] = self._shards[index].renewed(self._contents)
            return self._shards[index]

    def _bound(self, limit_bytes: int) -> None:
        embedding = self._shards[0]
        self._budget = Budget(limit_bytes, self._sizes, 0 if embedding.is_copy else embedding.size_bytes)
        self._budget.check()
        self._capacity_bytes = self._budget.capacity_bytes(copied_bytes=0)

    def _preload(self, share: float) -> None:
        left_bytes = share * (sum(self._sizes) + self._shards[0].size_bytes)
        if self._capacity_bytes is not None:  # what is read last would push out what is needed first
            left_bytes = min(left_bytes, self._capacity_bytes)
        n_layers = 0
        while n_layers < len(self._sizes) and self._sizes[n_layers] <= left_bytes:
            left_bytes -= self._sizes[n_layers]
            n_layers += 1
        self._prefetcher.want([partial(self._load, 1 + index) for index in range(n_layers)])
        for index in range(n_layers):
            self._ready(1 + index)
        if left_bytes >= self._shards[0].size_bytes:
            self._shards[0].read_ahead(self._contents)

    def _make_room(self, current: int) -> None:
        """Lets go of what the policy names, and has what comes next read ahead."""
        self._current = current
        layers = self._shards[1:]
        if current == 0 and self._budget is not None:
            copied_bytes = sum([shard.size_bytes for shard in layers if shard.is_copy])
            self._capacity_bytes = self._budget.capacity_bytes(copied_bytes)
        if self._capacity_bytes is None and not self._reads_ahead:
            return
        held = {index for index, shard in enumerate(layers) if shard.state in _HELD}
        if self._capacity_bytes is None and len(held) == len(layers):
            self._reads_ahead = False  # until storage has to be waited for again
            self._prefetcher.want(self._loads([], is_last=True))
            return
        window = self._pace.window if self._reads_ahead else 0
        todo = plan(self._sizes, held, current, window, self._capacity_bytes)
        for index in todo.evict:
            self._evict(layers[index])
        if self._reads_ahead:
            self._prefetcher.want(self._loads(todo.load, is_last=current + window >= len(layers)))

    def _loads(self, layers: Iterable[int], *, is_last: bool) -> list[Callable[[], object]]:
        loads: list[Callable[[], object]] = [
            partial(self._load, 1 + index) for index in layers if index != self._current
        ]
        if is_last and not self._shards[0].is_read:  # then comes the head
            loads.append(partial(self._shards[0].read_ahead, self._contents))
        return loads

    def _begin_reading_ahead(self) -> None:
        """The first shard that is not in memory: the next ones will not be, either."""
        if not self._reads_ahead and self._budget is not None:
            self._reads_ahead = True
            self._make_room(self._current)

    def _check(self, shard: Shard) -> None:
        """What has changed is of no use any more: the next request brings it anew, or is told why not."""
        try:
            shard.check_unchanged()
        except ShardError:
            for each in self._shards:  # a mount that is gone takes all of them, and fails one request for it
                self._evict_if_changed(each)
            raise

    def _evict_if_changed(self, shard: Shard) -> None:
        if shard.state is ShardState.READY:
            try:
                shard.check_unchanged()
            except ShardError:
                self._evict(shard)

    def _evict(self, shard: Shard) -> None:
        if shard.state is ShardState.READY:
            shard.evict()
            self.n_evicted += 1
