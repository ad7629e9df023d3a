# SPDX-License-Identifier: Apache-2.0
"""A file mapped read-only and shared: its pages belong to the page cache, not to this process."""

from __future__ import annotations

import mmap
import os
import stat
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from quickthaw.layers.errors import MappingError, ShardMissingError, ShardReplacedError, ShardTruncatedError

if TYPE_CHECKING:
    from _typeshed import StrPath


_READ_AHEAD_BYTES = 1 << 20  # at a time


class FileIdentity(NamedTuple):
    """What changes when a file is replaced, rewritten or cut short."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """The identity in a result of stat."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class FileMapping:
    """One mapped file, unmapped when this object and the last view are gone.

    SAFETY: `buffer` is never closed. numpy keeps the map alive but takes no lock on it, so closing it would
    succeed and leave views into nothing. A file cut short under its map ends whoever reads there (SIGBUS).
    """

    def __init__(self, file: FileIO, path: StrPath) -> None:
        """Raises: MappingError."""
        self.path = path
        self.identity = FileIdentity.of(os.fstat(file.fileno()))
        try:
            # SAFETY: ACCESS_READ, so no view can be written through; the map holds its own descriptor.
            self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as exc:
            raise MappingError(
                "cannot map a shard",
                where=path,
                found=str(exc),
                advice="put the shard set on a file system that supports mmap",
            ) from exc

    def check_unchanged(self) -> None:
        """Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError."""
        check_unchanged(self.path, self.identity)

    def read_ahead(self) -> None:
        """Bring the file into memory in large blocks, where page faults would ask for a few KiB at a time.

        Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError, OSError.
        """
        block = bytearray(_READ_AHEAD_BYTES)
        with open_regular(self.path, self.identity.size_bytes) as file:
            while file.readinto(block):
                pass

    def resident_bytes(self) -> int | None:
        """How much of the file is in memory, whoever brought it there; None where the kernel does not say.

        About 1 ms for 60 MB. A file that this process may not write counts as resident whole (Linux 5.2).
        Source: mincore(2).
        """
        import ctypes  # and numpy: both are imported long before anybody asks

        import numpy as np

        mincore = getattr(ctypes.CDLL(None), "mincore", None)
        if mincore is None:
            return None
        n_pages = -(-len(self.buffer) // mmap.PAGESIZE)
        pages = np.zeros(n_pages, np.uint8)  # bit 0 of each: resident
        # SAFETY: both addresses are of live objects, and `pages` has a byte for every page of the range.
        address = np.frombuffer(self.buffer, np.uint8).ctypes.data
        failed = mincore(
            ctypes.c_void_p(address),
            ctypes.c_size_t(len(self.buffer)),
            pages.ctypes.data_as(ctypes.POINTER(ctypes.c_ubyte)),
        )
        if failed:
            return None
        return min(int((pages & 1).sum()) * mmap.PAGESIZE, len(self.buffer))


def open_regular(path: StrPath, size_bytes: int) -> FileIO:
    """Opens a shard's file for reading.

    Raises: ShardMissingError, ShardReplacedError when it is no regular file, ShardTruncatedError.
    """
    try:
        # O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise missing(path, exc) from exc
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ShardReplacedError("a shard is not a regular file", where=path)
        if status.st_size != size_bytes:
            raise truncated(path, size_bytes, status.st_size)
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def check_unchanged(path: StrPath, identity: FileIdentity) -> None:
    """One system call: is the file at this path still the one that was mapped, and whole?

    Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError.
    """
    try:
        found = FileIdentity.of(os.stat(path))
    except OSError as exc:
        raise missing(path, exc) from exc
    if found == identity:
        return
    if found.size_bytes != identity.size_bytes:
        raise truncated(path, identity.size_bytes, found.size_bytes)
    raise ShardReplacedError(
        "a shard's file changed while it was mapped",
        where=path,
        expected=identity,
        found=found,
        advice="restart the function; write a new shard set beside the old one, never over it",
    )


def missing(path: StrPath, exc: OSError) -> ShardMissingError:
    """The error for a shard's file that cannot be opened."""
    return ShardMissingError(
        "cannot open a shard",
        where=path,
        found=exc.strerror,
        advice="copy the whole shard set, or make it again with `quickthaw shard`",
    )


def truncated(path: StrPath, expected_bytes: int, found_bytes: int) -> ShardTruncatedError:
    """The error for a shard's file of the wrong size."""
    return ShardTruncatedError(
        "a shard's file has the wrong size",
        where=path,
        expected=f"{expected_bytes} bytes",
        found=f"{found_bytes} bytes",
        advice="copy the shard set again, or make it again with `quickthaw shard`",
    )
