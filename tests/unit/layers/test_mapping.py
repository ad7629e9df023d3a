# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.errors import MappingError
from quickthaw.layers.mapping import FileMapping
from quickthaw.layers.storage.regular_file import open_regular

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


def test_what_cannot_be_mapped_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with open_regular(tmp_path / "empty", 0) as file, pytest.raises(MappingError, match="mmap"):
        FileMapping(file, tmp_path / "empty")


def test_a_file_cut_short_has_no_end_any_more(mapping: FileMapping, path: Path) -> None:
    assert mapping.has_its_end()
    os.truncate(path, 4096)

    assert not mapping.has_its_end()


def test_pages_that_were_let_go_come_back(mapping: FileMapping, path: Path) -> None:
    view = np.frombuffer(mapping.buffer, np.uint8)
    mapping.let_go()

    assert view.tobytes() == path.read_bytes()
