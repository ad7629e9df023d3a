# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from quickthaw.layers.errors import ShardMissingError, ShardReplacedError, ShardTruncatedError, StorageError
from quickthaw.layers.storage.storage import Reading, open_storage


def test_a_directory_gives_the_files_themselves(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")

    stored = open_storage(tmp_path).open("a", 5, "")

    with stored.file as file:
        assert file.read() == b"12345"
    assert (stored.path, stored.reading) == (str(tmp_path / "a"), Reading.MAPPED)
    stored.check_unchanged()


def test_a_file_that_changes_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    stored = open_storage(tmp_path).open("a", 5, "")
    stored.file.close()

    path.write_bytes(b"1234")
    with pytest.raises(ShardTruncatedError):
        stored.check_unchanged()
    path.unlink()
    path.write_bytes(b"12345")
    with pytest.raises(ShardReplacedError):
        stored.check_unchanged()


def test_no_more_of_a_small_file_is_read_than_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")

    assert open_storage(tmp_path).read("a", 4) == b"1234"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)

    with pytest.raises(ShardMissingError, match=f"{tmp_path}/absent"):
        storage.read("absent", 4)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder: found Is a directory"):
        storage.read("folder", 4)
