# SPDX-License-Identifier: Apache-2.0
"""A directory that appears whole or not at all, whenever its writer is killed.

    OUT                 absent, or whole
    .OUT.partial        being written; its lock says by a living process
    .OUT.replaced       the whole one that OUT was, while the new one takes its place

`commit` renames OUT → .OUT.replaced, then .OUT.partial → OUT. Who finds .OUT.replaced without OUT, after a
kill between the two, puts it back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from quickthaw.layers.errors import DiskFullError, SplitError, SplitRunningError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Staging:
    """A context in which `directory` is filled; `commit` makes it `out`, and without that it is removed."""

    def __init__(self, out: Path) -> None:
        out = out.resolve()  # a link stays, what it leads to is replaced
        self._out = out
        self._retired = out.with_name(f".{out.name}.replaced")
        self.directory = out.with_name(f".{out.name}.partial")
        self._lock: int | None = None

    def __enter__(self) -> Staging:
        """Raises: SplitRunningError, SplitError."""
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_directory(self.directory)
            self._clean()
        except BlockingIOError as exc:
            raise SplitRunningError(
                "another process is writing this output", where=self._out, advice="wait until it is done"
            ) from exc
        except OSError as exc:
            raise write_error(exc, self._out) from exc
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Removed while locked, so no other process finds it half gone. After a commit it is not there.
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        if isinstance(error, OSError):
            raise write_error(error, self._out) from error

    def commit(self) -> None:
        """Makes the directory `out`, replacing what is there. Raises: OSError."""
        _sync_directory(self.directory)
        if self._out.exists():
            os.rename(self._out, self._retired)
        os.rename(self.directory, self._out)
        _sync_directory(self._out.parent)
        shutil.rmtree(self._retired, ignore_errors=True)

    def _clean(self) -> None:
        """Removes what killed processes left, and puts back what they had taken away."""
        for path in self.directory.iterdir():
            path.unlink()
        if self._retired.exists():
            if self._out.exists():
                shutil.rmtree(self._retired)
            else:
                os.rename(self._retired, self._out)


def write_error(exc: OSError, out: Path) -> SplitError:
    """What to tell about an error of the file system while `out` was written."""
    if exc.errno in _NO_ROOM:
        return DiskFullError(
            "no room for the shard set",
            where=out,
            found=exc.strerror,
            advice="nothing was left behind; free some space, or choose another directory",
        )
    return SplitError("cannot write the shard set", where=exc.filename or out, found=exc.strerror)


def _lock_directory(directory: Path) -> int:
    """A descriptor that holds the lock of the directory, made if absent. Raises: BlockingIOError, OSError."""
    while True:
        directory.mkdir(exist_ok=True)
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process committed or removed it in between
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(directory)):
                return descriptor
        except FileNotFoundError:
            pass  # as above: the lock is of a directory that is gone
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
