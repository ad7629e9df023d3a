# SPDX-License-Identifier: Apache-2.0
"""The objects under a prefix of a bucket: small ones read at once, large ones fetched into a file."""

from __future__ import annotations

from quickthaw.layers.errors import StorageError
from quickthaw.layers.storage.s3.bucket import Bucket
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.download import Download
from quickthaw.layers.storage.s3.location import Location
from quickthaw.layers.storage.s3.patience import Attempts, Patience


class Objects:
    """Those at `location`, s3://bucket/prefix; asked for from several threads at once."""

    def __init__(
        self, location: str, config: S3Config | None = None, patience: Patience | None = None
    ) -> None:
        """Raises: StorageError for an endpoint that is none."""
        self.location = location.rstrip("/")
        bucket, self._prefix = Location.of(location)
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

    def fetch(self, name: str, size_bytes: int, descriptor: int) -> None:
        """Writes one of this size into a descriptor. Raises: ShardError, one of its kinds."""
        Download(self._bucket, self._prefix + name, size_bytes, self._patience).into(descriptor)

    def release(self) -> None:
        """Lets go of what a capture cannot hold: connections, credentials."""
        self._bucket.release()
