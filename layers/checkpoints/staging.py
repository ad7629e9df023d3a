# SPDX-License-Identifier: Apache-2.0
"""A directory that appears whole or not at all, whenever its writer is killed, however many there are.

    OUT                 absent, or whole
    .OUT.lock           locked by the process that may touch any of these; gone when it is done
    .OUT.partial        being written
    .OUT.replaced       the whole one that OUT was, while the new one takes its place

`commit` renames OUT → .OUT.replaced, then .OUT.partial → OUT. Who finds .OUT.replaced without OUT, after a
kill between the two, puts it back. The lock is a file of its own, because the directories change their names.
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
        self._lock_path = out.with_name(f".{out.name}.lock")
        self.directory = out.with_name(f".{out.name}.partial")
        self._lock: int | None = None

    def __enter__(self) -> Staging:
        """Raises: SplitRunningError, SplitError."""
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._lock_path)
            self._clean()
            self.directory.mkdir()
        except BlockingIOError as exc:
            raise SplitRunningError(
                "another process is writing this output", where=self._out, advice="wait until it is done"
            ) from exc
        except OSError as exc:
            self._unlock()
            raise write_error(exc, self._out) from exc
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)  # after a commit it is not there
        self._unlock()
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

    def has_leftovers(self) -> bool:
        """Whether a writer is at work or was killed: what it left goes when this context is entered."""
        return any(map(os.path.lexists, (self.directory, self._retired, self._lock_path)))

    def _clean(self) -> None:
        """Removes what killed processes left, and puts back what they had taken away."""
        if self.directory.exists():
            shutil.rmtree(self.directory)
        if self._retired.exists():
            if self._out.exists():
                shutil.rmtree(self._retired)
            else:
                os.rename(self._retired, self._out)

    def _unlock(self) -> None:
        if self._lock is None:
            return
        # Removed while locked: whoever opened it before finds that it is not there any more.
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None


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


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of the file, made if absent. Raises: BlockingIOError, OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # its last owner removed it in between
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
