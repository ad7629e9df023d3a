# SPDX-License-Identifier: Apache-2.0
"""A shard set in S3, or in what speaks its protocol: fetched a file at a time, and kept in a cache."""

from __future__ import annotations

from quickthaw.layers.storage.cache import Cache
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.objects import Objects
from quickthaw.layers.storage.s3.patience import Patience
from quickthaw.layers.storage.storage import StoredFile


class S3(Objects):
    """`s3://bucket/prefix`, whose objects are the files of a shard set."""

    def __init__(
        self, location: str, cache: Cache, config: S3Config | None = None, patience: Patience | None = None
    ) -> None:
        """Raises: StorageError for an endpoint that is none."""
        super().__init__(location, config, patience)
        self._cache = cache

    def open(self, name: str, size_bytes: int, sha256: str) -> StoredFile:
        """Raises: ShardError, one of its kinds."""
        path = f"{self.location}/{name}"
        return self._cache.open(sha256, size_bytes, path, lambda half: self.fetch(name, size_bytes, half))
