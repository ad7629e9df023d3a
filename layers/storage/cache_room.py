# SPDX-License-Identifier: Apache-2.0
"""Which files leave the cache so that another has room: the oldest, and none of the set that is served.

A set that is larger than its cache would else push out with each file the one that is needed next.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

HALF = ".part"  # at the end of the name of a file that is being fetched
_RESERVE_BYTES = 64 << 20  # for whatever else is written to the same disk


class Kept(NamedTuple):
    """A file in the cache; half of one counts as what it is going to be."""

    name: str
    size_bytes: int
    mtime_ns: int


def make_room(directory: str, size_bytes: int, limit_bytes: int | None, spared: Collection[str]) -> None:
    """Removes files until one of this size fits, on the disk and within the limit.

    Raises: OSError, which is ENOSPC where that cannot be.
    """
    with _locked(directory):
        files = list(_files(directory))
        too_much = size_bytes - _free_bytes(directory)
        if limit_bytes is not None:
            too_much = max(too_much, sum(file.size_bytes for file in files) + size_bytes - limit_bytes)
        leaving = victims(files, too_much, spared)
        if leaving is None:
            raise OSError(errno.ENOSPC, f"no room for {size_bytes:,} bytes")
        for name in leaving:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))


def victims(files: Iterable[Kept], too_much_bytes: int, spared: Collection[str]) -> list[str] | None:
    """The oldest files that together free so much; None where all that may leave do not."""
    leaving: list[str] = []
    for file in sorted(files, key=lambda file: file.mtime_ns):
        if too_much_bytes <= 0:
            break
        if file.name not in spared and not file.name.endswith(HALF):
            leaving.append(file.name)
            too_much_bytes -= file.size_bytes
    return leaving if too_much_bytes <= 0 else None


def _files(directory: str) -> Iterator[Kept]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(HALF) and _is_abandoned(entry.path):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield Kept(entry.name, status.st_size, status.st_mtime_ns)


def _is_abandoned(half: str) -> bool:
    """Whether whoever fetched it has ended; then it is removed."""
    try:
        with open(half, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(half)
    except OSError:
        return False
    return True


def _free_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize - _RESERVE_BYTES


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Two processes must not count on the same room."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
