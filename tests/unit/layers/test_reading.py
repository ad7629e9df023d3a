# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from quickthaw.layers import reading
from quickthaw.layers.errors import ShardTruncatedError
from quickthaw.layers.storage.regular_file import open_regular

SIZE_BYTES = (9 << 20) + 5  # two blocks and a part


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE_BYTES))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def test_a_file_is_read_into_the_page_cache(path: Path) -> None:
    with open_regular(path, SIZE_BYTES) as file:
        assert not reading.is_in_memory(file.fileno(), SIZE_BYTES)
        reading.read_through(file, path, SIZE_BYTES)
        assert reading.is_in_memory(file.fileno(), SIZE_BYTES)


def test_a_buffer_is_filled_with_it(path: Path) -> None:
    buffer = bytearray(SIZE_BYTES)
    with open_regular(path, SIZE_BYTES) as file:
        reading.read_into(file, path, memoryview(buffer))

    assert buffer == path.read_bytes()


def test_an_end_that_comes_early_is_told(path: Path) -> None:
    with open_regular(path, SIZE_BYTES) as file:
        os.truncate(path, 6 << 20)
        with pytest.raises(ShardTruncatedError, match=f"expected {SIZE_BYTES} bytes, found {6 << 20}"):
            reading.read_into(file, path, memoryview(bytearray(SIZE_BYTES)))
