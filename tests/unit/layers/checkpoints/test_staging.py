# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quickthaw.layers.checkpoints.staging import Staging
from quickthaw.layers.errors import DiskFullError, SplitError, SplitRunningError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "set"


def write_whole(out: Path, content: str) -> None:
    with Staging(out) as staging:
        (staging.directory / "file").write_text(content)
        staging.commit()


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


def test_nothing_appears_before_the_commit(out: Path) -> None:
    with Staging(out) as staging:
        (staging.directory / "file").write_text("new")
        assert not out.exists()
        staging.commit()
        assert (out / "file").read_text() == "new"

    assert names(out) == ["set"]


def test_leaving_without_a_commit_leaves_nothing(out: Path) -> None:
    with Staging(out) as staging:
        (staging.directory / "file").write_text("new")

    assert names(out) == []


def test_an_error_leaves_the_old_one(out: Path) -> None:
    write_whole(out, "old")

    def fail() -> None:
        with Staging(out) as staging:
            (staging.directory / "file").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (out / "file").read_text() == "old"
    assert names(out) == ["set"]


def test_a_commit_replaces_what_is_there(out: Path) -> None:
    write_whole(out, "old")
    (out / "more").touch()
    write_whole(out, "new")

    assert [path.name for path in out.iterdir()] == ["file"]
    assert (out / "file").read_text() == "new"
    assert names(out) == ["set"]


def test_parents_are_made(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "set", "new")

    assert (tmp_path / "a" / "b" / "set" / "file").read_text() == "new"


def test_a_second_writer_is_told_and_the_first_is_not_harmed(out: Path) -> None:
    with Staging(out) as staging:
        (staging.directory / "file").write_text("first")
        with pytest.raises(SplitRunningError, match=str(out)), Staging(out):
            pass
        staging.commit()

    assert (out / "file").read_text() == "first"


def test_what_a_dead_writer_left_is_cleaned(out: Path) -> None:
    partial = out.with_name(".set.partial")
    partial.mkdir()
    (partial / "file").write_text("half")

    with Staging(out) as staging:
        assert list(staging.directory.iterdir()) == []
        staging.commit()

    assert names(out) == ["set"]


def test_what_was_taken_away_by_a_dead_writer_is_put_back(out: Path) -> None:
    write_whole(out, "old")
    out.rename(out.with_name(".set.replaced"))

    with Staging(out):
        assert (out / "file").read_text() == "old"

    assert names(out) == ["set"]


def test_what_was_replaced_by_a_dead_writer_is_removed(out: Path) -> None:
    write_whole(out, "old")
    out.rename(out.with_name(".set.replaced"))
    out.mkdir()
    (out / "file").write_text("new")

    with Staging(out):
        assert (out / "file").read_text() == "new"

    assert names(out) == ["set"]


def test_who_has_committed_leaves_the_next_writer_alone(out: Path) -> None:
    write_whole(out, "old")
    first = Staging(out)
    with first:
        (first.directory / "file").write_text("first")
        first.commit()
        with pytest.raises(SplitRunningError), Staging(out):
            pass
    with Staging(out) as second:
        (second.directory / "file").write_text("second")
        second.commit()

    assert (out / "file").read_text() == "second"
    assert names(out) == ["set"]


_WRITERS = """
import sys
from pathlib import Path
from quickthaw.layers.checkpoints.staging import Staging
from quickthaw.layers.errors import SplitRunningError

n_commits = 0
while n_commits < 100:
    try:
        with Staging(Path(sys.argv[1])) as staging:
            for name in ("a", "b", "c"):
                (staging.directory / name).touch()
            staging.commit()
        n_commits += 1
    except SplitRunningError:
        pass
"""


def test_many_writers_at_once_leave_a_whole_directory(out: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITERS, str(out)]) for _ in range(3)]

    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "c"]
    assert names(out) == ["set"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_as_such(out: Path, code: int) -> None:
    with pytest.raises(DiskFullError, match=f"{out}.*{os.strerror(code)}"), Staging(out):
        raise OSError(code, os.strerror(code))

    assert names(out) == []


def test_another_error_of_the_file_system_names_its_file(out: Path) -> None:
    with pytest.raises(SplitError, match="no/such"), Staging(out):
        (out / "no/such").touch()


def test_a_parent_that_is_a_file_is_refused(out: Path) -> None:
    out.touch()

    with pytest.raises(SplitError, match="cannot write the shard set"), Staging(out / "set"):
        pass


@pytest.fixture
def _no_privileges(request: pytest.FixtureRequest) -> Iterator[None]:
    """Root may write anywhere; for one test it is nobody."""
    request.getfixturevalue("out")  # made while root still is root
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("_no_privileges")
def test_a_directory_that_cannot_be_written_is_refused(out: Path) -> None:
    if os.access(out.parent, os.W_OK, effective_ids=True):
        out.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)

    with pytest.raises(SplitError, match="Permission denied"), Staging(out):
        pass
