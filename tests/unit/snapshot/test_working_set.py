# SPDX-License-Identifier: Apache-2.0
"""What a process has touched of its mapped files, and that it is read before it is asked for."""

import mmap
import os
import sys
from pathlib import Path

import pytest

from quickthaw.layers.mapping import FileMapping
from quickthaw.layers.storage.regular_file import open_regular
from quickthaw.snapshot import working_set
from quickthaw.snapshot.working_set import Range, Recorder

PAGE = mmap.PAGESIZE
SIZE = 1 << 20

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says which pages a process has touched"
)


def mapped(path: Path) -> FileMapping:
    path.write_bytes(bytes(SIZE))
    with open_regular(path, SIZE) as file:
        return FileMapping(file, path)


def is_covered(ranges: list[Range], file: str, at: int) -> bool:
    return any(each.file == file and each.begin_bytes <= at < each.end_bytes for each in ranges)


@linux
def test_what_was_touched_is_noted_in_its_order(tmp_path: Path) -> None:
    late, early, _never = (mapped(tmp_path / name) for name in "abc")
    recorder = Recorder(str(tmp_path))
    recorder.note()
    assert recorder.ranges == []
    early.buffer[SIZE // 2]
    recorder.note()
    late.buffer[0]
    recorder.note()
    recorder.note()
    assert [each.file for each in recorder.ranges] == ["b", "a"]
    assert is_covered(recorder.ranges, "b", SIZE // 2)
    assert is_covered(recorder.ranges, "a", 0)


@linux
def test_other_files_are_not_watched(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    other = mapped(tmp_path / "other")
    recorder = Recorder(str(tmp_path / "watched"))
    other.buffer[0]
    recorder.note()
    assert recorder.ranges == []


def test_a_record_is_read_back() -> None:
    ranges = [Range("b", 0, PAGE), Range("a", PAGE, 3 * PAGE)]
    assert working_set.decode(working_set.encode(ranges)) == ranges


@pytest.mark.parametrize(
    "data", [b"", b"{", b'[["../x", 0, 1]]', b'[["/etc/passwd", 0, 1]]', b'[["a", 5, 5]]', b'[["a", -1, 5]]']
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what is wrong does not matter
        working_set.decode(data)


@linux
def test_what_was_recorded_is_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "_is_in_memory", lambda _descriptor, _at: False)
    wanted, other = mapped(tmp_path / "a"), mapped(tmp_path / "b")
    os.sync()
    for name in "ab":
        with open(tmp_path / name, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if (other.resident_bytes() or 0) > 0:
        pytest.skip("this file system keeps what it was asked to drop")
    working_set.read_ahead(str(tmp_path), [Range("a", 0, SIZE)]).join()
    while (wanted.resident_bytes() or 0) < SIZE:  # the kernel is reading
        os.sched_yield()
    assert other.resident_bytes() == 0


@linux
def test_what_is_in_memory_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped(tmp_path / "a")
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: asked.append(arguments))
    working_set.read_ahead(str(tmp_path), [Range("a", 0, SIZE)]).join()
    assert asked == []
    monkeypatch.setattr(working_set, "_is_in_memory", lambda _descriptor, _at: False)
    working_set.read_ahead(str(tmp_path), [Range("a", PAGE, SIZE)]).join()
    assert [arguments[1:3] for arguments in asked] == [(PAGE, SIZE - PAGE)]


def test_a_file_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    working_set.read_ahead(str(tmp_path), [Range("absent", 0, 1)]).join()


@linux
def test_no_thread_is_left_when_the_process_forks(tmp_path: Path) -> None:
    mapped(tmp_path / "a")
    thread = working_set.read_ahead(
        str(tmp_path), [Range("a", at, at + PAGE) for at in range(0, SIZE, PAGE)] * 9
    )
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not thread.is_alive()
