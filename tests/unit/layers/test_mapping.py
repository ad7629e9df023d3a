# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.errors import (
    MappingError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
)
from quickthaw.layers.mapping import FileMapping, open_regular

SIZE_BYTES = 3 * 4096 + 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 48 + b"abcde")
    return path


@pytest.fixture
def mapping(path: Path) -> FileMapping:
    with open_regular(path, SIZE_BYTES) as file:
        return FileMapping(file, path)


def test_the_buffer_is_the_file_and_cannot_be_written(mapping: FileMapping, path: Path) -> None:
    view = np.frombuffer(mapping.buffer, np.uint8)

    assert view.tobytes() == path.read_bytes()
    assert not view.flags.writeable


def test_what_was_just_written_is_in_memory(mapping: FileMapping) -> None:
    assert mapping.resident_bytes() == SIZE_BYTES


def test_an_untouched_file_is_unchanged(mapping: FileMapping) -> None:
    mapping.check_unchanged()


def test_a_file_cut_short_is_noticed(mapping: FileMapping, path: Path) -> None:
    os.truncate(path, 4096)

    with pytest.raises(ShardTruncatedError, match=f"expected {SIZE_BYTES} bytes, found 4096 bytes"):
        mapping.check_unchanged()


def test_a_file_put_in_its_place_is_noticed(mapping: FileMapping, path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)

    with pytest.raises(ShardReplacedError, match=str(path)):
        mapping.check_unchanged()


def test_a_file_written_in_place_is_noticed(mapping: FileMapping, path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"!")
    os.utime(path, ns=(1, 1))

    with pytest.raises(ShardReplacedError):
        mapping.check_unchanged()


def test_a_removed_file_is_noticed(mapping: FileMapping, path: Path) -> None:
    path.unlink()

    with pytest.raises(ShardMissingError, match=str(path)):
        mapping.check_unchanged()


def test_the_map_lives_as_long_as_the_last_view(path: Path) -> None:
    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    with open_regular(path, SIZE_BYTES) as file:
        mapping = FileMapping(file, path)
    view = np.ndarray((SIZE_BYTES,), np.uint8, mapping.buffer)
    del mapping

    assert is_mapped()
    assert view[-1] == ord("e")
    del view
    assert not is_mapped()


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


def test_what_cannot_be_mapped_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with open_regular(tmp_path / "empty", 0) as file, pytest.raises(MappingError, match="mmap"):
        FileMapping(file, tmp_path / "empty")
