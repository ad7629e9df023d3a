# SPDX-License-Identifier: Apache-2.0
"""One shard: a file of the set, on its way into memory and out of it."""

from __future__ import annotations

import time
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from quickthaw.layers.content import Content, Contents
from quickthaw.layers.errors import ShardError, ShardTruncatedError, StorageError
from quickthaw.layers.mapping import PrivateCopy
from quickthaw.layers.shard_entry import ShardEntry
from quickthaw.layers.shard_header import check_header
from quickthaw.layers.storage.storage import Reading, Storage, StoredFile

if TYPE_CHECKING:
    import numpy.typing as npt

_PAUSES_S = (0.02, 0.2)  # before a second, and a third, attempt at what a storage failed at
_PATIENCE_S = 5.0  # a storage that took longer than this to fail has tried again itself
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in (("F32", "<f4"), ("BF16", "<u2"), ("F16", "<f2"), ("I8", "i1"), ("U8", "u1"))
}


class ShardState(Enum):
    """Where a shard is on its way into memory, and out of it.

    PENDING: nothing of its file is held. `load` makes it LOADING.
    LOADING: its file is being opened, mapped or copied, read and verified. It becomes READY, or PENDING again
    on an error.
    READY: its tensors may be read. `evict` makes it EVICTED.
    EVICTED: its tensors may be read no longer. It stays so: whoever needs them again makes a new shard.
    """

    PENDING = "pending"
    LOADING = "loading"
    READY = "ready"
    EVICTED = "evicted"


_NEXT = {
    ShardState.PENDING: (ShardState.LOADING,),
    ShardState.LOADING: (ShardState.READY, ShardState.PENDING),
    ShardState.READY: (ShardState.EVICTED,),
    ShardState.EVICTED: (),
}


class Shard:
    """One shard: its state, and views of its tensors while it is READY. Any thread may load it."""

    def __init__(self, storage: Storage, entry: ShardEntry) -> None:
        self.name = entry.file.removesuffix(".safetensors")
        self.state = ShardState.PENDING
        self.size_bytes = entry.size_bytes
        self._storage = storage
        self._where = f"{storage.location}/{entry.file}"
        self._entry = entry
        self._lock = Lock()
        self._stored: StoredFile | None = None
        self._content: Content | None = None
        self._tensors: dict[str, npt.NDArray[Any]] = {}
        self.is_read = False  # from end to end, once

    def load(self, contents: Contents, *, reads: bool = True) -> bool:
        """PENDING → LOADING → READY; False where another thread has done it. `reads`: it is in memory, too.

        What a storage fails at is tried again, unless that took long.
        Raises: ShardError, one of its kinds; the shard is PENDING again.
        """
        with self._lock:
            begin_s, pauses_s, is_mine = time.monotonic(), iter(_PAUSES_S), False
            while self.state is not ShardState.READY:
                try:
                    self._load(contents, reads)
                    is_mine = True
                except StorageError:
                    pause_s = next(pauses_s, None)
                    if pause_s is None or time.monotonic() - begin_s > _PATIENCE_S:
                        raise
                    time.sleep(pause_s)
            return is_mine

    def _load(self, contents: Contents, reads: bool) -> None:
        self._become(ShardState.LOADING)
        try:
            stored = self._storage.open(self._entry.file, self.size_bytes, self._entry.sha256)
            with stored.file:
                content = contents.bring(stored, self.size_bytes, self._entry.sha256, reads=reads)
            check_header(content, self._entry)
        except BaseException:
            self._become(ShardState.PENDING)
            raise
        self._stored, self._content = stored, content
        self._tensors = _views(content, self._entry)
        self.is_read = reads or isinstance(content, PrivateCopy)
        self._become(ShardState.READY)

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """A read-only view of its bytes: each dtype as numpy has it, BF16 as the uint16 of its bits.

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
        """Two system calls: is its file the one that was mapped, and all of it there?

        Raises: ShardMissingError, StorageError, ShardTruncatedError, ShardReplacedError.
        """
        stored, content = self._ready()
        stored.check_unchanged()
        if not content.has_its_end():
            raise ShardTruncatedError("a shard's file was cut short while it was mapped", where=self._where)

    def resident_bytes(self) -> int | None:
        """How much of it is in memory: nothing unless READY; None where the kernel does not say."""
        return 0 if self._content is None else self._content.resident_bytes()

    @property
    def is_copy(self) -> bool:
        """Whether it is READY in memory of this process's own."""
        return isinstance(self._content, PrivateCopy)

    @property
    def has_to_be_read(self) -> bool:
        """Whether it was mapped, but not read, and no page fault is to fetch it."""
        return not self.is_read and self._stored is not None and self._stored.reading is Reading.AHEAD

    def let_go(self) -> None:
        """Its pages leave this process; what reads its tensors brings them back."""
        if self._content is not None:
            self._content.let_go()

    def read_ahead(self, contents: Contents) -> None:
        """Bring it into memory, where it is not.

        Raises: ShardError when it is not READY, is missing, truncated or replaced.
        """
        self.check_unchanged()
        if self.is_copy:
            return
        stored = self._storage.open(self._entry.file, self.size_bytes, self._entry.sha256)
        with stored.file:
            contents.read_through(stored, self.size_bytes)
        self.is_read = True

    def evict(self) -> None:
        """READY → EVICTED: lets go of its bytes; views that are still held stay valid."""
        self._become(ShardState.EVICTED)
        self._content, self._tensors = None, {}

    def renewed(self, contents: Contents) -> Shard:
        """A shard to take the place of this one, which is EVICTED.

        Raises: ShardError where its file may be another one meanwhile, and nothing would tell.
        """
        if self._stored is not None:
            contents.can_come_again(self._stored)
        return Shard(self._storage, self._entry)

    def _become(self, state: ShardState) -> None:
        if state not in _NEXT[self.state]:
            raise ShardError(
                f"a shard that is {self.state.value} cannot become {state.value}", where=self._where
            )
        self.state = state

    def _ready(self) -> tuple[StoredFile, Content]:
        if self._stored is None or self._content is None:
            raise ShardError(f"shard {self.name} is {self.state.value}, not ready", where=self._where)
        return self._stored, self._content


def _views(content: Content, entry: ShardEntry) -> dict[str, npt.NDArray[Any]]:
    # SAFETY: the manifest's check put every tensor inside the file, and the file has the size it says.
    return {
        name: np.ndarray(tensor.shape, _NUMPY_TYPES[tensor.dtype], content.buffer, tensor.offset_bytes)
        for name, tensor in entry.tensors.items()
    }
