# SPDX-License-Identifier: Apache-2.0
"""Reads a shard's file in large blocks: into the page cache, where it is mapped, or into a buffer.

A failing device, or a file that ends early, is an error here, where a page fault would end the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from typing import TYPE_CHECKING

from quickthaw.layers.storage.regular_file import truncated, unreadable

if TYPE_CHECKING:
    from _typeshed import StrPath

_BLOCK_BYTES = 4 << 20  # beyond it no storage measured got faster
_PROBE_BYTES = 1 << 20  # one look for each


def read_through(file: FileIO, path: StrPath, size_bytes: int) -> None:
    """Bring a file into the page cache.

    Raises: StorageError, ShardTruncatedError.
    """
    block = memoryview(bytearray(min(_BLOCK_BYTES, size_bytes)))
    for begin, end in _blocks(size_bytes):
        _read(file, path, block[: end - begin], begin, size_bytes)


def read_into(file: FileIO, path: StrPath, buffer: memoryview) -> None:
    """Fill a buffer of the file's size with it.

    Raises: StorageError, ShardTruncatedError.
    """
    for begin, end in _blocks(len(buffer)):
        _read(file, path, buffer[begin:end], begin, len(buffer))


def is_in_memory(descriptor: int, size_bytes: int) -> bool:
    """Whether a byte in every MiB of a file is in the page cache; no where the kernel does not say.

    Asked so, and not by mincore, which calls every page of another user's file resident (Linux 5.2).
    """
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    byte = [bytearray(1)]
    try:
        return all(
            os.preadv(descriptor, byte, at, os.RWF_NOWAIT) for at in range(0, size_bytes, _PROBE_BYTES)
        )
    except OSError:  # it would have to be waited for, or the file system cannot be asked
        return False


def _blocks(size_bytes: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, size_bytes, _BLOCK_BYTES):
        yield begin, min(begin + _BLOCK_BYTES, size_bytes)


def _read(file: FileIO, path: StrPath, block: memoryview, at: int, size_bytes: int) -> None:
    done = 0
    while done < len(block):
        try:
            n_bytes = os.preadv(file.fileno(), [block[done:]], at + done)
        except OSError as exc:
            raise unreadable(path, exc) from exc
        if n_bytes == 0:
            raise truncated(path, size_bytes, at + done)
        done += n_bytes
