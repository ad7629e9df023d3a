# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quickthaw.layers.errors import ShardMissingError, ShardReplacedError, ShardTruncatedError, StorageError
from quickthaw.layers.storage.regular_file import FileIdentity, check_unchanged, open_regular, unreadable

SIZE_BYTES = 3 * 4096 + 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 48 + b"abcde")
    return path


@pytest.fixture
def identity(path: Path) -> FileIdentity:
    return FileIdentity.of(path.stat())


def test_an_untouched_file_is_unchanged(identity: FileIdentity, path: Path) -> None:
    check_unchanged(path, identity)


def test_a_file_cut_short_is_noticed(identity: FileIdentity, path: Path) -> None:
    os.truncate(path, 4096)

    with pytest.raises(ShardTruncatedError, match=f"expected {SIZE_BYTES} bytes, found 4096 bytes"):
        check_unchanged(path, identity)


def test_a_file_put_in_its_place_is_noticed(identity: FileIdentity, path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)

    with pytest.raises(ShardReplacedError, match=str(path)):
        check_unchanged(path, identity)


def test_a_file_written_in_place_is_noticed(identity: FileIdentity, path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"!")
    os.utime(path, ns=(1, 1))

    with pytest.raises(ShardReplacedError):
        check_unchanged(path, identity)


def test_a_removed_file_is_noticed(identity: FileIdentity, path: Path) -> None:
    path.unlink()

    with pytest.raises(ShardMissingError, match=str(path)):
        check_unchanged(path, identity)


def test_an_absent_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ShardMissingError, match="No such file"):
        open_regular(tmp_path / "absent", 1)


@pytest.mark.parametrize("size_bytes", [SIZE_BYTES - 1, SIZE_BYTES + 1])
def test_a_file_of_another_size_is_refused(path: Path, size_bytes: int) -> None:
    with pytest.raises(ShardTruncatedError, match=f"found {SIZE_BYTES} bytes"):
        open_regular(path, size_bytes)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ShardReplacedError, match="not a regular file"):
        open_regular(tmp_path / "pipe", 1)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardReplacedError, match="not a regular file"):
        open_regular(tmp_path, 1)


def test_what_may_be_over_the_next_time_is_told_apart() -> None:
    for number in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE):
        assert isinstance(unreadable("x", OSError(number, os.strerror(number))), StorageError)
    for number in (errno.ENOENT, errno.EACCES):
        assert isinstance(unreadable("x", OSError(number, os.strerror(number))), ShardMissingError)
