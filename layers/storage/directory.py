# SPDX-License-Identifier: Apache-2.0
"""A shard set in a directory, on whatever is mounted there."""

from __future__ import annotations

import os
from io import FileIO
from typing import TYPE_CHECKING

from quickthaw.layers.storage.filesystem import Kind, file_system_of
from quickthaw.layers.storage.regular_file import FileIdentity, check_unchanged, open_regular, unreadable
from quickthaw.layers.storage.storage import Reading

if TYPE_CHECKING:
    from _typeshed import StrPath


class Directory:
    """Opens the files themselves; what they lie on is looked up once."""

    def __init__(self, path: StrPath, *, copies: bool = False) -> None:
        """`copies`: others may write to the files."""
        self.location = os.fspath(path)
        self._reading = Reading.COPIED if copies else None

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
        file = open_regular(path, size_bytes)
        if self._reading is None:
            is_local = file_system_of(file.fileno(), path).kind is Kind.LOCAL
            self._reading = Reading.MAPPED if is_local else Reading.AHEAD
        return DirectoryFile(file, path, self._reading)

    def release(self) -> None:
        """Nothing is held."""


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

    def discard(self) -> None:
        """It is no copy."""
