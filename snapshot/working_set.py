# SPDX-License-Identifier: Apache-2.0
"""The working set: which pages of its mapped files a process has touched, and in which order.

`read_ahead` has them read before the next process asks for them. What was touched is what the kernel has put
into this process's page tables (proc_pid_pagemap(5)), whoever brought the file into memory. With a page come
those around it that are in memory already (64 KiB, or a folio): the record has no finer grain. Linux only:
elsewhere nothing is recorded, and nothing read ahead.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from threading import Thread
from typing import NamedTuple

_MAPS, _PAGEMAP = "/proc/self/maps", "/proc/self/pagemap"
_ENTRY_BYTES = 8
_PRESENT = bytes([each >> 7 for each in range(256)])  # bit 63 of an entry, the highest of its last byte
_TOUCHED = re.compile(rb"\x01+")
# The kernel cuts a longer wish down to what it reads ahead at once (force_page_cache_ra, Linux 4.10 on).
_PIECE_BYTES = 1 << 20


class Range(NamedTuple):
    """A stretch of a file in a directory that both sides know."""

    file: str
    begin_bytes: int
    end_bytes: int


class Recorder:
    """Watches the files of one directory that this process has mapped."""

    def __init__(self, directory: str) -> None:
        self.ranges: list[Range] = []
        self._directory = os.path.realpath(directory)
        self._seen: dict[tuple[str, int], int] = {}  # file, offset → its pages as the bytes of a number

    def note(self) -> None:
        """Add what was touched since this was last called, file by file."""
        for file, address, offset, size_bytes in sorted(_mappings(self._directory)):
            n_pages = size_bytes // mmap.PAGESIZE
            pages = int.from_bytes(_present(address, n_pages), "big")
            seen = self._seen.get((file, offset), 0)
            self._seen[file, offset] = pages | seen
            for run in _TOUCHED.finditer((pages & ~seen).to_bytes(n_pages, "big")):
                begin, end = (offset + page * mmap.PAGESIZE for page in run.span())
                self.ranges.append(Range(file, begin, end))


def encode(ranges: Iterable[Range]) -> bytes:
    """A JSON array of [file, begin_bytes, end_bytes], in order."""
    return json.dumps(list(ranges), separators=(",", ":")).encode()


def decode(data: bytes) -> list[Range]:
    """Raises: ValueError when `encode` did not write it, or it leads out of its directory."""
    ranges = [Range(*each) for each in json.loads(data)]
    for each in ranges:
        if os.path.basename(each.file) != each.file or not 0 <= each.begin_bytes < each.end_bytes:
            raise ValueError(each)
    return ranges


def read_ahead(directory: str, ranges: Iterable[Range]) -> Thread:
    """Ask the kernel for these, in their order, while this process goes on.

    In a thread, which ends by itself: where storage is slow the kernel makes the asker wait.
    """
    thread = Thread(target=_ask, args=(directory, ranges), name="quickthaw-read-ahead", daemon=True)
    thread.start()
    os.register_at_fork(before=thread.join)  # a process that is about to be cloned must have no thread
    return thread


def _ask(directory: str, ranges: Iterable[Range]) -> None:
    if not hasattr(os, "RWF_NOWAIT"):
        return
    descriptors: dict[str, int] = {}
    try:
        for file, begin_bytes, end_bytes in ranges:
            if file not in descriptors:
                descriptors[file] = os.open(os.path.join(directory, file), os.O_RDONLY | os.O_CLOEXEC)
            for at in range(begin_bytes, end_bytes, _PIECE_BYTES):
                if not _is_in_memory(descriptors[file], at):
                    n_bytes = min(_PIECE_BYTES, end_bytes - at)
                    os.posix_fadvise(descriptors[file], at, n_bytes, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass  # whoever needs the file will say so
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _is_in_memory(descriptor: int, at: int) -> bool:
    """Whether a byte is there: asked for what it has, the kernel still goes through every page of a piece.

    Being asked, it reads the first few; fast storage may have them at once, and needs no more of this.
    """
    try:
        return os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT) > 0
    except OSError:
        return False


def _mappings(directory: str) -> Iterator[tuple[str, int, int, int]]:
    """File, address, offset and size of each mapping of a file in the directory."""
    try:
        with open(_MAPS) as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        addresses, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and os.path.dirname(path[0]) == directory:
            begin, end = (int(each, 16) for each in addresses.split("-"))
            yield os.path.basename(path[0]), begin, int(offset, 16), end - begin


def _present(address: int, n_pages: int) -> bytes:
    """A byte for each page: 1 where it is in this process's page tables."""
    with open(_PAGEMAP, "rb", buffering=0) as file:
        file.seek(address // mmap.PAGESIZE * _ENTRY_BYTES)
        entries = file.read(n_pages * _ENTRY_BYTES)
    return entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].translate(_PRESENT).ljust(n_pages, b"\0")
