# SPDX-License-Identifier: Apache-2.0
"""Compares a shard's bytes with its digest, once for each file when a stamp can be kept.

A stamp is one line of `verified` in the cache directory, written after the digest was found to be right:

    device inode size_bytes mtime_ns ctime_ns sha256

A file that was rewritten, replaced or copied has another identity, so no line equals its own. The directory
must belong to this user alone: whoever can write a stamp can vouch for a damaged shard.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from io import FileIO
from typing import TYPE_CHECKING

from quickthaw.layers.config import Verify
from quickthaw.layers.errors import ShardDamagedError, ShardReplacedError
from quickthaw.layers.spans import Spans
from quickthaw.layers.storage.regular_file import FileIdentity

if TYPE_CHECKING:
    from _typeshed import StrPath

# The kernel dates a change by a clock that ticks every 1 to 10 ms: a file rewritten within the tick of its
# last change looks the same. So a file gets its stamp only once its last change lies further back than that.
_SETTLED_NS = 50_000_000
_STAMPS_LIMIT_BYTES = 4 << 20  # some 30,000 files; begun anew beyond it


class Verifier:
    """Decides whether a file's digest must be computed, computes it, and remembers the outcome."""

    def __init__(self, verify: Verify, cache: StrPath, spans: Spans | None = None) -> None:
        self._verify = verify
        self._cache = cache
        self._spans = Spans() if spans is None else spans
        self._is_reported = False
        self._stamps = _read_stamps(cache) if verify is Verify.FIRST else frozenset[str]()

    @property
    def reads_bytes(self) -> bool:
        """Whether other bytes than the digest's would be noticed."""
        return self._verify is not Verify.NEVER

    def check(self, file: FileIO, path: StrPath, sha256: str, copied: memoryview | None = None) -> None:
        """Returns when the open file's bytes, or those `copied` from it, may be trusted under the rule.

        Raises: ShardDamagedError, ShardReplacedError when the file changed while it was read.
        """
        if self._verify is Verify.NEVER:
            return
        identity = FileIdentity.of(os.fstat(file.fileno()))
        is_settled = time.time_ns() - identity.ctime_ns > _SETTLED_NS
        stamp = " ".join(map(str, (*identity, sha256)))
        if stamp in self._stamps:
            return
        shard_name = os.path.basename(path).partition(".")[0]
        with self._spans.timed(f"{shard_name} verify"):
            found = _digest(file, copied)
        if found != sha256:
            raise ShardDamagedError(
                "a shard's bytes are damaged",
                where=path,
                expected=f"SHA-256 {sha256}",
                found=found,
                advice="copy the shard set again, or make it again with `quickthaw shard`",
            )
        if FileIdentity.of(os.fstat(file.fileno())) != identity:
            raise ShardReplacedError("a shard's file changed while it was verified", where=path)
        if self._verify is Verify.FIRST and is_settled:
            self._remember(stamp)

    def _remember(self, stamp: str) -> None:
        try:
            _append_stamp(self._cache, stamp)
        except OSError as exc:
            if not self._is_reported:
                self._is_reported = True
                print(
                    f"quickthaw: cannot remember verified shards in {os.fspath(self._cache)}: {exc}; "
                    "each start verifies them again",
                    file=sys.stderr,
                )


def _digest(file: FileIO, copied: memoryview | None) -> str:
    # Imported here: with OpenSSL behind it, hashlib costs milliseconds that a stamped start does not pay.
    import hashlib

    if copied is not None:
        return hashlib.sha256(copied).hexdigest()
    # Read, not mapped: a file cut short meanwhile gives a wrong digest instead of SIGBUS.
    return hashlib.file_digest(file, "sha256").hexdigest()


def open_private(cache: StrPath) -> int:
    """A descriptor of the cache directory, once it is known to be ours alone. Raises: OSError."""
    descriptor = os.open(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        os.close(descriptor)
        raise PermissionError("the directory belongs to, or can be written by, somebody else")
    return descriptor


def _read_stamps(cache: StrPath) -> frozenset[str]:
    try:
        directory = open_private(cache)
    except OSError:
        return frozenset()  # no stamps: verify; the reason is told when one cannot be written
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open("verified", flags, dir_fd=directory), "rb") as file:
            return frozenset(file.read(_STAMPS_LIMIT_BYTES).decode("ascii", "replace").split("\n"))
    except OSError:
        return frozenset()
    finally:
        os.close(directory)


def _append_stamp(cache: StrPath, stamp: str) -> None:
    os.makedirs(cache, mode=0o700, exist_ok=True)
    directory = open_private(cache)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open("verified", flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        if os.fstat(descriptor).st_size > _STAMPS_LIMIT_BYTES:
            os.ftruncate(descriptor, 0)
        os.write(
            descriptor, f"{stamp}\n".encode()
        )  # one write with O_APPEND: lines of two processes never mix
    finally:
        os.close(descriptor)
