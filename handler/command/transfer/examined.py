# SPDX-License-Identifier: Apache-2.0
"""A file of a shard set, found to be what the manifest says, and what S3 will say of it when it has it.

S3 tells of an object that was put in one piece its SHA-256 and, as ETag, its MD5; of one that was put in
parts the same of the parts' digests put together, and how many those were. Not every server tells the first.
Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
"""

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quickthaw.layers.errors import ShardDamagedError
from quickthaw.layers.manifest import SetFile
from quickthaw.layers.storage.regular_file import open_regular

PART_BYTES = 16 << 20  # S3 takes 10,000 of them


class Part(NamedTuple):
    """A stretch of the file that is sent at once."""

    begin: int
    size_bytes: int
    sha256: bytes
    md5: bytes

    @property
    def checksum(self) -> str:
        """As S3 writes it."""
        return b64encode(self.sha256).decode()

    def is_told_by(self, answer: Mapping[str, Any]) -> bool:
        """Whether an answer of S3 is about a part with these bytes."""
        if "ChecksumSHA256" in answer:
            return bool(answer["ChecksumSHA256"] == self.checksum)
        return bool(answer["ETag"].strip('"') == self.md5.hex())


class Examined(NamedTuple):
    """A file that may be sent."""

    name: str
    path: Path
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(part.size_bytes for part in self.parts)

    def is_told_by(self, answer: Mapping[str, Any]) -> bool:
        """Whether an answer of S3 is about an object with these bytes, sent as we send them."""
        if answer["ContentLength"] != self.size_bytes:
            return False
        if len(self.parts) == 1:
            return self.parts[0].is_told_by(answer)
        count = f"-{len(self.parts)}"
        if "ChecksumSHA256" in answer:
            sha256 = hashlib.sha256(b"".join(part.sha256 for part in self.parts)).digest()
            return bool(answer["ChecksumSHA256"] == b64encode(sha256).decode() + count)
        md5 = hashlib.md5(b"".join(part.md5 for part in self.parts), usedforsecurity=False).hexdigest()
        return bool(answer["ETag"].strip('"') == md5 + count)


def examine(directory: Path, file: SetFile) -> Examined:
    """Reads the whole file once. Raises: ShardError, one of its kinds."""
    path = directory / file.name
    with open_regular(path, file.size_bytes) as opened:
        whole = hashlib.sha256()
        parts = tuple(_parts(opened.fileno(), file.size_bytes, whole))
    if whole.hexdigest() != file.sha256:
        raise ShardDamagedError(
            "a shard's bytes are damaged",
            where=path,
            expected=f"SHA-256 {file.sha256}",
            found=whole.hexdigest(),
            advice="make the shard set again with `quickthaw shard`, or copy it again",
        )
    return Examined(file.name, path, parts)


def _parts(descriptor: int, size_bytes: int, whole: Any) -> Iterable[Part]:
    for begin in range(0, size_bytes, PART_BYTES):
        data = os.pread(descriptor, PART_BYTES, begin)
        whole.update(data)
        md5 = hashlib.md5(data, usedforsecurity=False)
        yield Part(begin, len(data), hashlib.sha256(data).digest(), md5.digest())
