# SPDX-License-Identifier: Apache-2.0
"""A cache of fetched files, shared by the processes of one user on one machine.

    QUICKTHAW_CACHE/shards/SHA256         a whole file, never written again
    QUICKTHAW_CACHE/shards/SHA256.part    half a file, locked by whoever is fetching it; renamed when whole

Who finds a lock waits for the file, so each is fetched once. A process that is killed leaves half a file and
no lock: the next one to want the file, or room, clears it away. Whether a file has its digest is for whoever
asked to say, as everywhere (verification.py); one that has not is discarded. Where the cache has no room, or
may not be written, a file is kept in memory.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from quickthaw.layers.errors import ShardMissingError, ShardTruncatedError, StorageTimeoutError
from quickthaw.layers.storage.cache_room import HALF, make_room
from quickthaw.layers.storage.cached_file import CachedFile, MemoryFile
from quickthaw.layers.storage.regular_file import open_regular
from quickthaw.layers.storage.storage import StoredFile
from quickthaw.layers.verification import open_private

Fetch = Callable[[int], None]  # writes a whole file into a descriptor

_LOOK_AGAIN_S = 0.005
_STUCK_S = 90.0  # without a byte: longer than a fetch can take before it fails


class Cache:
    """Gives out files by their digest; what is not there is fetched."""

    def __init__(self, directory: str, limit_bytes: int | None) -> None:
        self._owned = directory
        self._directory = os.path.join(directory, "shards")
        self._limit_bytes = limit_bytes  # None: what the disk has
        self._given_out: set[str] = set()
        self._is_reported = False

    def open(self, sha256: str, size_bytes: int, path: str, fetch: Fetch) -> StoredFile:
        """The file, which errors call `path`.

        Raises: ShardError, one of its kinds.
        """
        self._given_out.add(sha256)
        cached = os.path.join(self._directory, sha256)
        while (file := _find(cached, size_bytes)) is None:
            try:
                half = self._claim(cached)
                if half is None:
                    _wait(cached, path)
                    continue
                with FileIO(half, "r+"):
                    self._fill(half, cached, size_bytes, fetch)
            except OSError as exc:
                self._report(exc.strerror or str(exc))
                return _in_memory(size_bytes, path, fetch)
        return CachedFile(file, cached, path)

    def _claim(self, cached: str) -> int | None:
        """A descriptor of half the file, ours to fill; None while another process has it. Raises: OSError."""
        self._make_private()
        half = os.open(cached + HALF, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(half, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(half), os.stat(cached + HALF)):  # else it is whole meanwhile
                return half
        os.close(half)
        return None

    def _make_private(self) -> None:
        """Whoever can write here could give us other weights. Raises: OSError."""
        for directory in (self._owned, self._directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.close(open_private(directory))

    def _fill(self, half: int, cached: str, size_bytes: int, fetch: Fetch) -> None:
        """Makes half a file a whole one. Raises: OSError where it cannot be kept, ShardError."""
        try:
            if os.path.exists(cached):  # fetched between our look at it and the lock
                os.unlink(cached + HALF)
                return
            make_room(self._directory, size_bytes, self._limit_bytes, self._given_out)
            os.ftruncate(half, 0)
            os.posix_fallocate(half, 0, size_bytes)  # a disk that is full is full now, not in the middle
            fetch(half)
            os.fchmod(half, 0o400)
            os.rename(cached + HALF, cached)
        except BaseException:
            os.unlink(cached + HALF)
            raise

    def _report(self, reason: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            print(
                f"quickthaw: cannot keep shards in {self._directory}: {reason}; they are kept in memory",
                file=sys.stderr,
            )


def _in_memory(size_bytes: int, path: str, fetch: Fetch) -> MemoryFile:
    descriptor = os.memfd_create("quickthaw-shard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        fetch(descriptor)
        # SAFETY: of its final size for good, so that no map of it can end in SIGBUS.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return MemoryFile(FileIO(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise


def _find(cached: str, size_bytes: int) -> FileIO | None:
    """The file, if it is there and whole; one that was cut short is removed."""
    try:
        return open_regular(cached, size_bytes)
    except ShardMissingError:
        return None
    except ShardTruncatedError:
        with suppress(OSError):
            os.unlink(cached)
        return None


def _wait(cached: str, path: str) -> None:
    """Pauses while another process fetches. Raises: StorageTimeoutError when it is stuck."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(cached + HALF).st_mtime > _STUCK_S:
            raise StorageTimeoutError(
                "another process has stopped to fetch a shard",
                where=path,
                expected=f"a byte every {_STUCK_S:g} s",
                advice="end that process",
            )
    time.sleep(_LOOK_AGAIN_S)
