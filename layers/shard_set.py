# SPDX-License-Identifier: Apache-2.0
"""A shard set: opened with the embedding alone, each layer's shard brought when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quickthaw.layers import manifest as manifest_file
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.content import Contents
from quickthaw.layers.errors import ShardError
from quickthaw.layers.manifest import TOKENIZER_FILE_NAME, Manifest
from quickthaw.layers.shard import Shard, ShardState
from quickthaw.layers.spans import Spans
from quickthaw.layers.storage.storage import Storage, StoredFile, open_storage
from quickthaw.layers.verification import Verifier

if TYPE_CHECKING:
    from _typeshed import StrPath


class ShardSet:
    """The shards of one model. Used from one thread at a time."""

    def __init__(self, storage: Storage, manifest: Manifest, verifier: Verifier, spans: Spans) -> None:
        self.manifest = manifest
        self.spans = spans
        self.bytes_mapped = 0
        self._storage = storage
        self._contents = Contents(verifier)
        self._shards = [Shard(storage, entry) for entry in manifest.shards]
        self._tokenizer: StoredFile | None = None  # once it was asked for
        self._is_closed = False

    @classmethod
    def open(cls, location: StrPath, config: LayersConfig) -> ShardSet:
        """Reads the manifest and maps the embedding shard; no other file is looked at.

        Raises: ManifestError, ShardError.
        """
        spans = Spans()
        with spans.timed("manifest"):
            storage = open_storage(location, config)
            manifest = manifest_file.read_from(storage)
        shards = cls(storage, manifest, Verifier(config.verify, config.cache, spans), spans)
        shards._load(0)
        return shards

    @property
    def embedding(self) -> Shard:
        """The embedding shard, READY, with the set's other mapped file checked as well.

        Raises: ShardError.
        """
        self.check_unchanged()
        return self._shards[0]

    def check_unchanged(self) -> None:
        """A system call for each file that is mapped from the start: the embedding, the tokenizer's tables.

        Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError.
        """
        self._ready(0)
        if self._tokenizer is not None:
            self._tokenizer.check_unchanged()

    def layer(self, index: int) -> Shard:
        """The shard of one layer, READY: mapped when first asked for, afterwards checked to be unchanged.

        Raises: ShardError.
        """
        return self._ready(1 + index)

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
            shard = self._ready(index)
            size_bytes += shard.size_bytes
            if limit_bytes is None or size_bytes <= limit_bytes:
                shard.read_ahead(self._contents)
        return self._contents.bytes_read - before_bytes

    def release(self) -> None:
        """The storage lets go of what a capture cannot hold."""
        self._storage.release()

    def resident_bytes(self) -> int | None:
        """How much of the mapped shards is in memory; None where the kernel does not say."""
        found = [shard.resident_bytes() for shard in self._shards]
        known = [size_bytes for size_bytes in found if size_bytes is not None]
        return sum(known) if len(known) == len(found) else None

    def close(self) -> None:
        """Lets go of every shard."""
        for shard in self._shards:
            self._evict(shard)
        self._tokenizer = None
        self._is_closed = True
        self.release()

    def _ready(self, index: int) -> Shard:
        if self._is_closed:
            raise ShardError("the shard set is closed", where=self._storage.location)
        if self._shards[index].state is ShardState.READY:
            self._check(self._shards[index])
        else:
            self._load(index)
        return self._shards[index]

    def _load(self, index: int) -> None:
        if self._shards[index].state is ShardState.EVICTED:
            self._shards[index] = self._shards[index].renewed(self._contents)
        shard = self._shards[index]
        with self.spans.timed(f"{shard.name} map", shard.size_bytes):
            # Of the embedding a few rows are gathered; if it is the head as well, it is needed last.
            shard.load(self._contents, reads=index > 0)
        self.bytes_mapped += shard.size_bytes

    def _check(self, shard: Shard) -> None:
        """One that has changed is of no use any more: the next request brings it anew, or is told why not."""
        try:
            shard.check_unchanged()
        except ShardError:
            self._evict(shard)
            raise

    def _evict(self, shard: Shard) -> None:
        if shard.state is ShardState.READY:
            shard.evict()
            self.bytes_mapped -= shard.size_bytes
