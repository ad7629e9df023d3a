# SPDX-License-Identifier: Apache-2.0
"""A file's bytes in memory, got there as its storage wants it, and vouched for."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from threading import Lock

from quickthaw.layers.errors import MappingError, ShardDamagedError
from quickthaw.layers.mapping import FileMapping, PrivateCopy
from quickthaw.layers.reading import is_in_memory, read_into, read_through
from quickthaw.layers.storage.regular_file import unreadable
from quickthaw.layers.storage.storage import Reading, StoredFile
from quickthaw.layers.verification import Verifier

Content = FileMapping | PrivateCopy

_REFUSED = frozenset((errno.ENODEV, errno.EINVAL, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP))


class Contents:
    """Maps or copies the files of one set, and compares them with their digests."""

    def __init__(self, verifier: Verifier, on_reading: Callable[[], None]) -> None:
        """`on_reading` is called before storage is waited for."""
        self.bytes_read = 0  # from storage, into memory
        self._verifier = verifier
        self._on_reading = on_reading
        self._lock = Lock()
        self._cannot_map = False

    def bring(self, stored: StoredFile, size_bytes: int, sha256: str, *, reads: bool) -> Content:
        """What is returned has the digest, or is trusted to. `reads`: what is mapped is in memory, too.

        Raises: ShardError, one of its kinds.
        """
        # Mapped first: what changes while it is read or verified is then noticed by the next check.
        mapping = self._mapped(stored)
        if mapping is not None:
            if reads:
                self.read_through(stored, size_bytes)
            self.verify(stored, sha256)
            return mapping
        copy = PrivateCopy(size_bytes, stored.path)
        self._on_reading()
        read_into(stored.file, stored.path, copy.bytes)
        self._count(size_bytes)
        stored.check_unchanged()  # or halves of two files could have been read
        self.verify(stored, sha256, copy.bytes)
        return copy

    def read_through(self, stored: StoredFile, size_bytes: int) -> None:
        """Bring a file that is mapped into memory, where it is not.

        Raises: StorageError, ShardTruncatedError.
        """
        if not is_in_memory(stored.file.fileno(), size_bytes):
            self._on_reading()
            read_through(stored.file, stored.path, size_bytes)
            self._count(size_bytes)

    def verify(self, stored: StoredFile, sha256: str, copied: memoryview | None = None) -> None:
        """Raises: ShardDamagedError, ShardReplacedError, StorageError."""
        try:
            self._verifier.check(stored.file, stored.path, sha256, copied)
        except ShardDamagedError:
            stored.discard()
            raise
        except OSError as exc:
            raise unreadable(stored.path, exc) from exc

    def can_come_again(self, stored: StoredFile) -> None:
        """Before a file is brought a second time: may it be another one meanwhile?

        Raises: ShardError where no digest would tell.
        """
        if not self._verifier.reads_bytes:
            stored.check_unchanged()

    def _count(self, n_bytes: int) -> None:
        with self._lock:
            self.bytes_read += n_bytes

    def _mapped(self, stored: StoredFile) -> FileMapping | None:
        """None where it is to be copied, or cannot be mapped. Raises: MappingError."""
        if stored.reading is Reading.COPIED or self._cannot_map:
            return None
        try:
            return FileMapping(stored.file, stored.path)
        except MappingError as exc:
            if not (isinstance(exc.__cause__, OSError) and exc.__cause__.errno in _REFUSED):
                raise
            self._cannot_map = True
            print(f"quickthaw: {exc}; shards are read into memory of this process's own", file=sys.stderr)
            return None
