# SPDX-License-Identifier: Apache-2.0
"""A file mapped read-only and shared: its pages belong to the page cache, not to this process."""

from __future__ import annotations

import mmap
from io import FileIO
from typing import TYPE_CHECKING

from quickthaw.layers.errors import MappingError

if TYPE_CHECKING:
    from _typeshed import StrPath


class FileMapping:
    """One mapped file, unmapped when this object and the last view are gone.

    SAFETY: `buffer` is never closed. numpy keeps the map alive but takes no lock on it, so closing it would
    succeed and leave views into nothing. A file cut short under its map ends whoever reads there (SIGBUS).
    """

    def __init__(self, file: FileIO, path: StrPath) -> None:
        """Raises: MappingError."""
        self.path = path
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
