# SPDX-License-Identifier: Apache-2.0
"""Files that were fetched: one in the cache, which other processes have too, and one in memory alone."""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO

from quickthaw.layers.errors import ShardReplacedError, ShardTruncatedError
from quickthaw.layers.storage.regular_file import FileIdentity
from quickthaw.layers.storage.storage import Reading


class CachedFile:
    """A file of the cache, whose name is what its digest should be.

    Pushed out of the cache, or fetched there again, it stays what it is under the map: only who writes to
    that very file, or cuts it short, changes what is mapped.
    """

    reading = Reading.MAPPED

    def __init__(self, file: FileIO, cached: str, path: str) -> None:
        self.file = file
        self.path = path
        self._cached = cached
        self._identity = FileIdentity.of(os.fstat(file.fileno()))

    def check_unchanged(self) -> None:
        """Raises: ShardTruncatedError, ShardReplacedError."""
        found = self._found()
        if found is None or found == self._identity:
            return
        is_cut = found.size_bytes != self._identity.size_bytes
        kind = ShardTruncatedError if is_cut else ShardReplacedError
        raise kind(
            "a shard's file in the cache was changed while it was mapped",
            where=f"{self.path}, in {self._cached}",
            expected=self._identity,
            found=found,
            advice="restart the function, and let nobody else write to QUICKTHAW_CACHE",
        )

    def discard(self) -> None:
        """The cache gives it to nobody any more."""
        if self._found() is not None:
            with suppress(OSError):
                os.unlink(self._cached)

    def _found(self) -> FileIdentity | None:
        """What the file is now; None once another one, or none, lies in its place."""
        try:
            found = FileIdentity.of(os.stat(self._cached))
        except OSError:
            return None
        return found if found[:2] == self._identity[:2] else None


class MemoryFile:
    """A file without a place, which nobody else can open; gone with its last map."""

    reading = Reading.MAPPED

    def __init__(self, file: FileIO, path: str) -> None:
        self.file = file
        self.path = path

    def check_unchanged(self) -> None:
        """Nobody can change it."""

    def discard(self) -> None:
        """Nobody else has it."""
