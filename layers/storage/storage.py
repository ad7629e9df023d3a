# SPDX-License-Identifier: Apache-2.0
"""Where a shard set lies, and how its bytes get from there into memory.

A storage gives out a set's files as open, regular, local files whose bytes are whole: a directory the file
itself, something remote the file of a cache, or a memfd, once it was fetched. All else is the same for every
storage and happens above it: states, verification, reading ahead, the memory budget.

An implementation

- opens files from several threads at once, each maybe while another is being fetched, and keeps no thread
  that outlives the call, or ends it before the process forks (`crew.py` does so): a capture has no threads;
- tries as often as its own protocol wants; what it raises then is a ShardError. StorageError, with
  StorageTimeoutError, is for what may be different the next time, and is tried again above. A file that is
  absent, of the wrong size, or replaced has a kind of its own, and is not;
- names in each error the place as its user would, such as a URL, and never a credential;
- is made without looking at the storage, and imports what it needs for itself when it is made: a start from
  a directory pays for no other.
"""

from __future__ import annotations

import os
from enum import Enum
from io import FileIO
from typing import TYPE_CHECKING, Protocol

from quickthaw.layers.config import LayersConfig

if TYPE_CHECKING:
    from _typeshed import StrPath

S3_SCHEME = "s3://"


class Reading(Enum):
    """How a file's bytes should get into memory.

    MAPPED: mapped; a page that is touched before it was read costs little. Local storage.
    AHEAD: mapped, and read in large blocks before it is touched: a page fault would ask for a few KiB, over
    a network or through another process.
    COPIED: read into memory of this process's own, since it cannot be mapped, or may change under the map.
    """

    MAPPED = "mapped"
    AHEAD = "ahead"
    COPIED = "copied"


class StoredFile(Protocol):
    """One file of a set, open; whoever asked for it closes `file`, and may go on to call the method."""

    file: FileIO  # regular, local, of the size that was asked for, at its beginning
    path: str  # what errors call it; it need not lead to `file`
    reading: Reading

    def check_unchanged(self) -> None:
        """One system call, before each layer: are the bytes still those of `file`, and all of them?

        Raises: ShardMissingError, ShardTruncatedError, ShardReplacedError.
        """

    def discard(self) -> None:
        """The bytes are not those of the digest: a copy of them is given to nobody any more."""


class Storage(Protocol):
    """Where one shard set lies; `location` is its configured name."""

    location: str

    def read(self, name: str, limit_bytes: int) -> bytes:
        """A small file of unknown size, such as the manifest, at most `limit_bytes` of it.

        Raises: ShardMissingError, StorageError.
        """

    def open(self, name: str, size_bytes: int, sha256: str) -> StoredFile:
        """A file of the set. The digest is what it should have: a key to a cache; it is compared above.

        Raises: ShardError, one of its kinds.
        """

    def release(self) -> None:
        """Lets go of what a capture cannot hold, such as connections; the next call makes it anew."""


def is_remote(location: StrPath) -> bool:
    """Whether this is no path: files there are fetched before they can be looked at."""
    return os.fspath(location).startswith(S3_SCHEME)


def open_storage(location: StrPath, config: LayersConfig | None = None) -> Storage:
    """The storage at a place that QUICKTHAW_SHARDS may name; the environment's `config` unless there is one.

    Raises: StorageError where there can be none.
    """
    if is_remote(location):  # a start imports its own storage alone
        from quickthaw.layers.storage.cache import Cache
        from quickthaw.layers.storage.s3.storage import S3

        config = LayersConfig.from_env() if config is None else config
        limit_bytes = None if config.cache_mib is None else config.cache_mib << 20
        return S3(os.fspath(location), Cache(config.cache, limit_bytes))
    from quickthaw.layers.storage.directory import Directory

    return Directory(location, copies=config is not None and config.copies)
