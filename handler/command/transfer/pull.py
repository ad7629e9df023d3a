# SPDX-License-Identifier: Apache-2.0
"""`quickthaw pull`: a shard set out of S3 into a directory. Its manifest comes last; what is whole stays."""

import errno
import fcntl
import hashlib
import os
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from quickthaw.handler.command.transfer.concurrently import for_each
from quickthaw.layers import manifest
from quickthaw.layers.errors import (
    DiskFullError,
    OutputExistsError,
    ShardDamagedError,
    ShardError,
    SplitError,
    SplitRunningError,
)
from quickthaw.layers.manifest import SetFile
from quickthaw.layers.progress import Progress
from quickthaw.layers.storage.regular_file import open_regular
from quickthaw.layers.storage.s3.objects import Objects

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PullReport(NamedTuple):
    """What a pull did."""

    out: Path
    name: str
    n_files: int
    n_fetched: int

    def __str__(self) -> str:
        return f"{self.out} now holds {self.name}: {self.n_fetched} of {self.n_files} files were fetched"


def pull(url: str, out: Path, *, force: bool, progress: Progress) -> PullReport:
    """Makes `out` the shard set that is at `url`, and whole.

    Raises: ManifestError, ShardError; OutputExistsError, DiskFullError, SplitError.
    """
    objects = Objects(url)
    data = objects.read(manifest.FILE_NAME, manifest.SIZE_LIMIT_BYTES)
    found = manifest.parse(data, f"{objects.location}/{manifest.FILE_NAME}")
    try:
        _make_way(out, data, found.files, force)
        progress.start(sum(file.size_bytes for file in found.files))
        try:
            n_fetched = sum(for_each(lambda file: _fetch(objects, out, file, progress), found.files))
        finally:
            progress.finish()
        _put(out, manifest.FILE_NAME, data)
    except OSError as exc:
        raise _write_error(exc, out) from exc
    finally:
        objects.release()
    return PullReport(out, found.name, len(found.files), n_fetched)


def _make_way(out: Path, data: bytes, files: list[SetFile], force: bool) -> None:
    """Another set's manifest goes before its shards are replaced. Raises: OutputExistsError, OSError."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / manifest.FILE_NAME
    if path.exists():
        if path.read_bytes() == data:
            return
        if not force:
            advice = "choose another directory, or use --force to replace it"
            raise OutputExistsError("output holds another shard set", where=out, advice=advice)
        path.unlink()
        return
    ours = {file.name for file in files}
    if any(name not in ours and not name.endswith(".partial") for name in os.listdir(out)):
        advice = "choose another directory, or remove it yourself"
        raise OutputExistsError("output exists and is no shard set", where=out, advice=advice)


def _fetch(objects: Objects, out: Path, file: SetFile, progress: Progress) -> bool:
    """Fetches a file unless it is there and whole; whether it was not. Raises: ShardError, OSError."""
    is_there = _is_whole(out / file.name, file)
    if not is_there:
        partial = out / f".{file.name}.partial"
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with FileIO(descriptor, "r+"):
            _lock(descriptor, out)
            try:
                _fill(objects, file, partial, descriptor)
                os.rename(partial, out / file.name)
            except BaseException:
                partial.unlink()
                raise
    progress.advance(file.size_bytes)
    return not is_there


def _fill(objects: Objects, file: SetFile, partial: Path, descriptor: int) -> None:
    """Raises: ShardError, OSError."""
    os.ftruncate(descriptor, 0)
    os.posix_fallocate(descriptor, 0, file.size_bytes)
    objects.fetch(file.name, file.size_bytes, descriptor)
    os.fsync(descriptor)
    if not _is_whole(partial, file):
        raise ShardDamagedError(
            "a shard's bytes are damaged",
            where=f"{objects.location}/{file.name}",
            expected=f"SHA-256 {file.sha256}",
            advice="push the shard set again with `quickthaw push`",
        )


def _lock(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise SplitRunningError("another process is writing this output", where=out) from exc


def _is_whole(path: Path, file: SetFile) -> bool:
    try:
        with open_regular(path, file.size_bytes) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except ShardError:
        return False


def _put(out: Path, name: str, data: bytes) -> None:
    partial = out / f".{name}.partial"
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(partial, out / name)


def _write_error(exc: OSError, out: Path) -> SplitError:
    if exc.errno in _NO_ROOM:
        advice = "free some space and pull again: what is whole stays"
        return DiskFullError("no room for the shard set", where=out, found=exc.strerror, advice=advice)
    return SplitError("cannot write the shard set", where=exc.filename or out, found=exc.strerror)
