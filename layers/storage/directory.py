# SPDX-License-Identifier: Apache-2.0
"""A shard set in a directory, on whatever is mounted there."""

from __future__ import annotations

import os
from io import FileIO
from typing import TYPE_CHECKING

from quickthaw.layers.storage.regular_file import FileIdentity, check_unchanged, open_regular, unreadable
from quickthaw.layers.storage.storage import Reading

if TYPE_CHECKING:
    from _typeshed import StrPath


class Directory:
    """Opens the files themselves."""

    def __init__(self, path: StrPath) -> None:
        self.location = os.fspath(path)

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Raises: ShardMissingError, StorageError."""
        path = os.path.join(self.location, name)
        try:
            with open(path, "rb") as file:
                return file.read(limit_bytes)
        except OSError as exc:
            raise unreadable(path, exc) from exc

    def open(self, name: str, size_bytes: int, sha256: str) -> DirectoryFile:  # noqa: ARG002 - nothing is cached
        """Raises: ShardError, one of its kinds."""
        path = os.path.join(self.location, name)
        return DirectoryFile(open_regular(path, size_bytes), path, Reading.MAPPED)


class DirectoryFile:
    """A file that others may replace, or cut short, while it is mapped."""

    def __init__(self, file: FileIO, path: str, reading: Reading) -> None:
        self.file = file
        self.path = path
        self.reading = reading
        self._identity = FileIdentity.of(os.fstat(file.fileno()))

    def check_unchanged(self) -> None:
        """Raises: ShardMissingError, StorageError, ShardTruncatedError, ShardReplacedError."""
        check_unchanged(self.path, self._identity)
