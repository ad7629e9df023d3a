# SPDX-License-Identifier: Apache-2.0
"""s3://bucket/prefix: where the files of a set are objects."""

from __future__ import annotations

from typing import NamedTuple

from quickthaw.layers.storage.storage import S3_SCHEME


class Location(NamedTuple):
    """A bucket, and how the key of each object in it begins: empty, or with a / at its end."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> Location:
        """The place that a URL names; slashes at its end mean nothing."""
        bucket, _, prefix = url.removeprefix(S3_SCHEME).rstrip("/").partition("/")
        return cls(bucket, f"{prefix}/" if prefix else "")
