# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from quickthaw.layers.storage.cache_room import Kept, make_room, victims

OLD, OLDER, NEW = Kept("old", 10, 2), Kept("older", 10, 1), Kept("new", 10, 3)
FILES = [OLD, OLDER, NEW]


@pytest.mark.parametrize(
    ("too_much", "spared", "leaving"),
    [
        (0, (), []),
        (-5, (), []),
        (1, (), ["older"]),
        (10, (), ["older"]),
        (11, (), ["older", "old"]),
        (11, ("old",), ["older", "new"]),
        (31, (), None),
        (21, ("new",), None),
    ],
)
def test_the_oldest_leave_and_none_that_is_spared(
    too_much: int, spared: tuple[str, ...], leaving: list[str] | None
) -> None:
    assert victims(FILES, too_much, spared) == leaving


def test_a_file_that_is_being_fetched_stays() -> None:
    assert victims([Kept("a.part", 10, 0), NEW], 10, ()) == ["new"]


def _fill(directory: Path, *names: str) -> None:
    for age, name in enumerate(names):
        (directory / name).write_bytes(bytes(1000))
        os.utime(directory / name, (age, age))


def test_the_limit_is_for_all_files_together(tmp_path: Path) -> None:
    _fill(tmp_path, "a", "b", "c")

    make_room(str(tmp_path), 1000, 3000, ())

    assert sorted(os.listdir(tmp_path)) == ["b", "c"]


def test_where_room_cannot_be_had_nothing_leaves(tmp_path: Path) -> None:
    _fill(tmp_path, "a", "b")

    with pytest.raises(OSError, match="no room for 2,500 bytes"):
        make_room(str(tmp_path), 2500, 3000, ("a",))
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_disk_is_a_limit_too(tmp_path: Path) -> None:
    _fill(tmp_path, "a")

    with pytest.raises(OSError, match="no room"):
        make_room(str(tmp_path), 1 << 60, None, ())


def test_half_a_file_counts_while_somebody_fetches_it_and_else_is_removed(tmp_path: Path) -> None:
    _fill(tmp_path, "abandoned.part", "fetched.part", "a")
    with (tmp_path / "fetched.part").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        make_room(str(tmp_path), 1000, 2000, ())

    assert os.listdir(tmp_path) == ["fetched.part"]
