# SPDX-License-Identifier: Apache-2.0
"""The pages of files that a process has in its page tables, and how a fork of it gets them into its own.

A fork copies no page tables of mapped files: each page that the clone touches is a fault, though it is in
memory. For 500 MB of shards that is 20 ms of a first answer, and more.

Source: proc(5), maps; https://docs.kernel.org/admin-guide/mm/pagemap.html; madvise(2), MADV_POPULATE_READ.
"""

import mmap
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

_SPAN_PAGES = 512  # what one page of a page table holds; filled in less than 1 ms
_ENTRY_BYTES = 8
_PRESENT = 1 << 63
_MADV_POPULATE_READ = 22  # Linux 5.14


class Span(NamedTuple):
    """Neighbouring pages."""

    address: int
    n_pages: int


def of_files() -> list[Span]:
    """Where this process has pages of files in its page tables that it cannot write to."""
    spans: list[Span] = []
    with suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for mapping in _file_mappings():
            pagemap.seek(mapping.address // mmap.PAGESIZE * _ENTRY_BYTES)
            for first in range(0, mapping.n_pages, _SPAN_PAGES):
                n_pages = min(_SPAN_PAGES, mapping.n_pages - first)
                entries = array("Q", pagemap.read(n_pages * _ENTRY_BYTES))
                if max(entries, default=0) & _PRESENT:
                    spans.append(Span(mapping.address + first * mmap.PAGESIZE, n_pages))
    return spans


def fill(spans: Sequence[Span], is_enough: Callable[[], bool]) -> None:
    """Bring those that are in memory into this process's page tables, until it is enough.

    Where the kernel cannot, they come as they are touched.
    """
    import ctypes  # 3 ms, which a plain start would pay

    libc = ctypes.CDLL(None)
    resident = (ctypes.c_ubyte * _SPAN_PAGES)()
    for address, n_pages in spans:
        if is_enough():
            break
        start, length = ctypes.c_void_p(address), ctypes.c_size_t(n_pages * mmap.PAGESIZE)
        # SAFETY: `resident` has a byte for each page. Where nothing is mapped any more, mincore says so, and
        # nothing is written to the pages.
        if libc.mincore(start, length, resident) == 0 and all(resident[:n_pages]):
            libc.madvise(start, length, _MADV_POPULATE_READ)


def _file_mappings() -> Iterator[Span]:
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, permissions, _, _, inode, *_ = line.split(maxsplit=5)
            if inode != "0" and permissions.startswith("r-"):
                begin, end = (int(address, 16) for address in addresses.split("-"))
                yield Span(begin, (end - begin) // mmap.PAGESIZE)
