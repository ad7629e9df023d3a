# SPDX-License-Identifier: Apache-2.0
"""A shard set in S3, or in what speaks its protocol: fetched a file at a time, and kept in a cache."""

from __future__ import annotations

from quickthaw.layers.errors import StorageError
from quickthaw.layers.storage.cache import Cache
from quickthaw.layers.storage.s3.bucket import Bucket
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.download import Download
from quickthaw.layers.storage.s3.patience import Attempts, Patience
from quickthaw.layers.storage.storage import S3_SCHEME, StoredFile


class S3:
    """`s3://bucket/prefix`, whose objects are the files of a shard set."""

    def __init__(
        self, location: str, cache: Cache, config: S3Config | None = None, patience: Patience | None = None
    ) -> None:
        """Raises: StorageError for an endpoint that is none."""
        self.location = location.rstrip("/")
        bucket, _, prefix = self.location.removeprefix(S3_SCHEME).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._cache = cache
        self._patience = patience or Patience()
        self._bucket = Bucket(bucket, config or S3Config.from_env(), self._patience)

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Raises: ShardMissingError, StorageError."""
        attempts = Attempts(self._patience)
        while True:
            try:
                with self._bucket.get(self._prefix + name, {}, attempts.deadline_s) as answer:
                    return answer.read(limit_bytes)
            except StorageError as exc:
                attempts.wait(exc, has_gained=False)

    def open(self, name: str, size_bytes: int, sha256: str) -> StoredFile:
        """Raises: ShardError, one of its kinds."""
        download = Download(self._bucket, self._prefix + name, size_bytes, self._patience)
        return self._cache.open(sha256, size_bytes, f"{self.location}/{name}", download.into)

    def release(self) -> None:
        """Lets go of what a capture cannot hold: connections, credentials."""
        self._bucket.release()
