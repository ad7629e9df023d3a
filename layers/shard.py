# SPDX-License-Identifier: Apache-2.0
"""A shard set and its shards: opened with the embedding alone, each layer mapped when it is first needed.

A shard's file is a safetensors file, which `checkpoints/shard_file.py` draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from quickthaw.layers import manifest as manifest_file
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.errors import ShardDamagedError, ShardError, ShardReplacedError
from quickthaw.layers.manifest import TOKENIZER_FILE_NAME, Manifest
from quickthaw.layers.mapping import FileMapping
from quickthaw.layers.shard_entry import ShardEntry
from quickthaw.layers.spans import Spans
from quickthaw.layers.storage.storage import Storage, StoredFile, open_storage
from quickthaw.layers.verification import Verifier

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import StrPath

_READ_AHEAD_BYTES = 1 << 20  # at a time
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}


class ShardState(Enum):
    """Where a shard is on its way into memory.

    PENDING: nothing of its file was looked at. `load` makes it LOADING.
    LOADING: its file is being opened, checked and mapped. It becomes READY, or PENDING again on an error.
    READY: its tensors may be read. `close` makes it CLOSED.
    CLOSED: its tensors may be read no longer; it stays closed.
    """

    PENDING = "pending"
    LOADING = "loading"
    READY = "ready"
    CLOSED = "closed"


class Shard:
    """One shard: its state, and views of its tensors while it is READY."""

    def __init__(self, storage: Storage, entry: ShardEntry) -> None:
        self.name = entry.file.removesuffix(".safetensors")
        self.state = ShardState.PENDING
        self.size_bytes = entry.size_bytes
        self._storage = storage
        self._where = f"{storage.location}/{entry.file}"
        self._entry = entry
        self._stored: StoredFile | None = None
        self._mapping: FileMapping | None = None
        self._tensors: dict[str, npt.NDArray[Any]] = {}
        self._was_read_ahead = False

    def load(self, verifier: Verifier) -> None:
        """PENDING → LOADING → READY: opens, verifies and maps the file.

        Raises: ShardError, one of its kinds; the shard is PENDING again.
        """
        if self.state is not ShardState.PENDING:
            raise ShardError(f"cannot load a shard that is {self.state.value}", where=self._where)
        self.state = ShardState.LOADING
        try:
            stored = self._storage.open(self._entry.file, self.size_bytes, self._entry.sha256)
            with stored.file as file:
                # Mapped first: what changes while it is verified is then noticed by the next check.
                mapping = FileMapping(file, stored.path)
                _check(stored, verifier, self._entry.sha256)
            _check_header(mapping, self._entry)
        except BaseException:
            self.state = ShardState.PENDING
            raise
        self._stored, self._mapping = stored, mapping
        self._tensors = _views(mapping, self._entry)
        self.state = ShardState.READY

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """A read-only view into the mapping: F32 as float32, BF16 as the uint16 that holds its bits.

        Raises: ShardError when the shard has no such tensor or is not READY.
        """
        try:
            return self._tensors[name]
        except KeyError:
            raise ShardError(
                f"no tensor {name} in shard {self.name}, which is {self.state.value}",
                where=self._where,
                expected=", ".join(self._entry.tensors),
            ) from None

    def has(self, name: str) -> bool:
        """Whether the shard holds a tensor of this name."""
        return name in self._entry.tensors

    def check_unchanged(self) -> None:
        """Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError."""
        self._ready().check_unchanged()

    def resident_bytes(self) -> int | None:
        """How much of it is in memory: nothing unless READY; None where the kernel does not say."""
        return 0 if self._mapping is None else self._mapping.resident_bytes()

    def read_ahead(self) -> int:
        """Bring it into memory, where it is not; the bytes that were read.

        Raises: ShardError when it is not READY, is missing, truncated or replaced.
        """
        # A kernel that keeps residency to itself calls everything resident: the first time, it is not asked.
        if self._was_read_ahead and self.resident_bytes() in (None, self.size_bytes):
            return 0
        self.check_unchanged()
        block = bytearray(_READ_AHEAD_BYTES)
        with self._storage.open(self._entry.file, self.size_bytes, self._entry.sha256).file as file:
            while file.readinto(block):
                pass
        self._was_read_ahead = True
        return self.size_bytes

    def close(self) -> None:
        """READY → CLOSED: lets go of the mapping; views that are still held stay valid."""
        self._stored, self._mapping, self._tensors = None, None, {}
        self.state = ShardState.CLOSED

    def _ready(self) -> StoredFile:
        if self._stored is None:
            raise ShardError(f"shard {self.name} is {self.state.value}, not ready", where=self._where)
        return self._stored


def _check(stored: StoredFile, verifier: Verifier, sha256: str) -> None:
    try:
        verifier.check(stored.file, stored.path, sha256)
    except ShardDamagedError:
        stored.discard()
        raise


def _views(mapping: FileMapping, entry: ShardEntry) -> dict[str, npt.NDArray[Any]]:
    # SAFETY: the manifest's check put every tensor inside the file, and the file has the size it says.
    return {
        name: np.ndarray(tensor.shape, _NUMPY_TYPES[tensor.dtype], mapping.buffer, tensor.offset_bytes)
        for name, tensor in entry.tensors.items()
    }


def _check_header(mapping: FileMapping, entry: ShardEntry) -> None:
    """Does the file say of itself what the manifest says of it? Tells swapped files apart even unverified."""
    try:
        header_bytes = int.from_bytes(mapping.buffer[:8], "little")
        header = json.loads(mapping.buffer[8 : 8 + header_bytes])
        found = header.pop("__metadata__")["shard"], _tensor_table(header, 8 + header_bytes)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ShardReplacedError(
            "a shard's header is not one that `quickthaw shard` wrote", where=mapping.path, found=repr(exc)
        ) from exc
    expected = entry.file, {name: tuple(tensor) for name, tensor in entry.tensors.items()}
    if found != expected:
        raise ShardReplacedError(
            "a shard's header does not agree with the manifest",
            where=mapping.path,
            expected=f"{entry.file} with {', '.join(entry.tensors)}",
            found=f"{found[0]} with {', '.join(found[1])}",
            advice="copy the whole shard set again; a file of another one may have taken its place",
        )


def _tensor_table(header: Mapping[str, Any], data_start_bytes: int) -> dict[str, tuple[Any, ...]]:
    return {
        name: (tensor["dtype"], tuple(tensor["shape"]), data_start_bytes + tensor["data_offsets"][0])
        for name, tensor in header.items()
        if not name.startswith("_pad.")
    }


class ShardSet:
    """The shards of one model. Used from one thread at a time."""

    def __init__(self, storage: Storage, manifest: Manifest, verifier: Verifier, spans: Spans) -> None:
        self.manifest = manifest
        self.spans = spans
        self.bytes_mapped = 0
        self._storage = storage
        self._verifier = verifier
        self._shards = [Shard(storage, entry) for entry in manifest.shards]
        self._tokenizer: StoredFile | None = None  # once it was asked for

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
        shards._load(shards._shards[0])
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
        self._shards[0].check_unchanged()
        if self._tokenizer is not None:
            self._tokenizer.check_unchanged()

    def layer(self, index: int) -> Shard:
        """The shard of one layer, READY: mapped when first asked for, afterwards checked to be unchanged.

        Raises: ShardError.
        """
        shard = self._shards[1 + index]
        if shard.state is ShardState.READY:
            shard.check_unchanged()
        else:
            self._load(shard)
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
            _check(stored, self._verifier, entry["sha256"])
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
        read_bytes = size_bytes = 0
        for index, shard in enumerate(self._shards):
            if not may_go_on():
                break
            if index > 0:
                self.layer(index - 1)
            size_bytes += shard.size_bytes
            if limit_bytes is None or size_bytes <= limit_bytes:
                read_bytes += shard.read_ahead()
        return read_bytes

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
            shard.close()
        self._tokenizer = None
        self.bytes_mapped = 0
        self.release()

    def _load(self, shard: Shard) -> None:
        with self.spans.timed(f"{shard.name} map", shard.size_bytes):
            shard.load(self._verifier)
        self.bytes_mapped += shard.size_bytes
