# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path

import pytest

from quickthaw.snapshot.engines.capture_directory import Capture, CaptureDirectory
from quickthaw.snapshot.errors import CaptureDirectoryError, CaptureMissingError

CAPTURE = Capture(
    handler="handler.handle",
    task_root="/srv/f",
    captured_at="2026-11-30T07:40:12+00:00",
    criu_version="4.1.1",
    output="pipe:[1]",
    lifeline="pipe:[2]",
    gate="srv/capture/gate",
    fingerprint={"function": {"handler": "handler.handle"}},
)


@pytest.fixture
def directory(tmp_path: Path) -> CaptureDirectory:
    return CaptureDirectory(tmp_path / "some" / "where")


def write(directory: CaptureDirectory) -> None:
    with directory.replacing():
        (directory.images / "pages-1.img").write_bytes(bytes(100))
        directory.write(CAPTURE)


def test_what_was_written_is_read(directory: CaptureDirectory) -> None:
    write(directory)
    with directory.in_use():
        assert directory.read() == CAPTURE
    assert directory.size_bytes() == 100


@pytest.mark.skipif(os.name != "posix", reason="the mode of a directory is POSIX's")
def test_it_is_for_its_owner_alone_whatever_it_was_before(directory: CaptureDirectory) -> None:
    directory.path.mkdir(mode=0o755, parents=True)
    write(directory)
    assert [path.stat().st_mode & 0o777 for path in (directory.path, directory.images)] == [0o700, 0o700]


def test_a_replacement_that_does_not_come_about_leaves_no_capture(directory: CaptureDirectory) -> None:
    write(directory)
    with directory.replacing():
        assert os.listdir(directory.images) == []
    with pytest.raises(CaptureMissingError, match=r"no capture\.json"), directory.in_use():
        directory.read()


def test_there_is_none_where_there_is_nothing(directory: CaptureDirectory) -> None:
    with pytest.raises(CaptureMissingError, match="No such file or directory"), directory.in_use():
        pass


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "cannot be read"),
        ("[]", "expected version 1, found None"),
        ('{"version": 2}', "expected version 1, found 2"),
        ('{"version": 1}', "missing 8 required"),
        (json.dumps({"version": 1, "unknown": 1}), "unexpected keyword"),
    ],
)
def test_a_record_that_says_something_else(directory: CaptureDirectory, text: str, found: str) -> None:
    write(directory)
    (directory.path / "capture.json").write_text(text)
    with pytest.raises(CaptureMissingError, match=found):
        directory.read()


@pytest.mark.parametrize("mode", [0o701, 0o720, 0o755])
def test_one_that_others_can_get_at_is_not_used(directory: CaptureDirectory, mode: int) -> None:
    write(directory)
    directory.path.chmod(mode)
    with pytest.raises(CaptureMissingError, match=f"found owner {os.geteuid()}, mode 0{mode:o}"):
        directory.read()


def test_what_is_no_capture_is_not_replaced(directory: CaptureDirectory) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "diary.txt").touch()
    with (
        pytest.raises(CaptureDirectoryError, match=r"holds diary\.txt.*name an empty"),
        directory.replacing(),
    ):
        pass
    (directory.path / "diary.txt").rename(directory.path / "images")  # a file
    with pytest.raises(CaptureDirectoryError), directory.replacing():
        pass
