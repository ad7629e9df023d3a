# SPDX-License-Identifier: Apache-2.0
"""A regular file of a shard set: opened only when it is one and whole, and known again by its identity."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from quickthaw.layers.errors import (
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
)

if TYPE_CHECKING:
    from _typeshed import StrPath

# What somebody has to change; any other failure may be the storage's own, and over the next time.
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG))


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


def open_regular(path: StrPath, size_bytes: int) -> FileIO:
    """Opens a shard's file for reading.

    Raises: ShardMissingError, StorageError, ShardTruncatedError; ShardReplacedError for what is no file.
    """
    try:
        # O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise unreadable(path, exc) from exc
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

    Raises: ShardMissingError, StorageError, ShardTruncatedError, ShardReplacedError.
    """
    try:
        found = FileIdentity.of(os.stat(path))
    except OSError as exc:
        raise unreadable(path, exc) from exc
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


def unreadable(path: StrPath, exc: OSError) -> ShardError:
    """The error for a shard's file that cannot be opened or read."""
    if exc.errno not in _ABSENT:
        return StorageError("the storage of a shard fails", where=path, found=exc.strerror)
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
