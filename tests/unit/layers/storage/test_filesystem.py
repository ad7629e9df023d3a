# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quickthaw.layers.storage.filesystem import FileSystem, Kind, file_system_of, file_system_under

LINE = "{id} 1 0:{id} / {mount_point} rw,relatime shared:7 master:1 - {type} some/source rw"
DESCRIPTOR = 5

Mounts = Callable[..., str]


@pytest.fixture
def proc(tmp_path: Path) -> Mounts:
    """A /proc/self that lists these mounts, numbered from 10, and the mount of descriptor 5."""

    def write(*mounts: tuple[str, str], mount_id: int | None = None) -> str:
        lines = [
            LINE.format(id=number, mount_point=mount_point, type=type_)
            for number, (mount_point, type_) in enumerate(mounts, 10)
        ]
        directory = tmp_path / "proc"
        (directory / "fdinfo").mkdir(parents=True)
        (directory / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
        fdinfo = "pos:\t0\nflags:\t02100000\n" + (f"mnt_id:\t{mount_id}\nino:\t3\n" if mount_id else "")
        (directory / "fdinfo" / str(DESCRIPTOR)).write_text(fdinfo)
        return str(directory)

    return write


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        *((name, Kind.LOCAL) for name in ("ext4", "xfs", "btrfs", "overlay", "tmpfs", "erofs", "squashfs")),
        *((name, Kind.NETWORK) for name in ("nfs", "nfs4", "cifs", "lustre", "ceph", "9p", "virtiofs")),
        *((name, Kind.FUSE) for name in ("fuse", "fuseblk", "fuse.mountpoint-s3", "fuse.sshfs")),
        *((name, Kind.UNKNOWN) for name in ("", "fusectl", "zfs2", "somethingfs")),
    ],
)
def test_the_type_says_what_answers_a_page_fault(type_: str, kind: Kind) -> None:
    assert FileSystem(type_, "/").kind is kind


def test_it_is_the_mount_by_which_the_file_was_opened_whatever_lies_over_it(proc: Mounts) -> None:
    mounts = [("/", "ext4"), ("/data", "nfs4"), ("/data", "tmpfs")]

    assert file_system_of(DESCRIPTOR, "/data/a", proc(*mounts, mount_id=11)) == ("nfs4", "/data")


def test_the_number_of_a_mount_is_not_taken_for_the_beginning_of_another(proc: Mounts) -> None:
    assert file_system_of(DESCRIPTOR, "/a", proc(("/", "ext4"), mount_id=1)).kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/set/a", "nfs4"),
        ("/data/set", "nfs4"),
        ("/data/settle/a", "xfs"),
        ("/data/top/a", "tmpfs"),
        ("/elsewhere", "ext4"),
    ],
)
def test_without_a_mount_number_it_is_the_longest_mount_point_and_the_last_mount(
    proc: Mounts, path: str, expected: str
) -> None:
    mounts = [("/", "ext4"), ("/data/set", "nfs4"), ("/data", "xfs"), ("/data/top", "9p")]

    assert file_system_of(DESCRIPTOR, path, proc(*mounts, ("/data/top", "tmpfs"))).type == expected


def test_what_the_kernel_escapes_is_read_as_it_was(proc: Mounts) -> None:
    found = file_system_of(DESCRIPTOR, "", proc((r"/a\040-\040b\134\011c", r"fuse.my\040fs"), mount_id=10))

    assert found == ("fuse.my fs", "/a - b\\\tc")
    assert str(found) == "fuse.my fs on /a - b\\\tc"


def test_a_mount_point_need_not_be_unicode(tmp_path: Path, proc: Mounts) -> None:
    directory = proc(("/PLACE", "ext4"), mount_id=10)
    path = tmp_path / "proc" / "mountinfo"
    path.write_bytes(path.read_bytes().replace(b"PLACE", b"\xff\xc3"))

    assert os.fsencode(file_system_of(DESCRIPTOR, "", directory).mount_point) == b"/\xff\xc3"


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    found = file_system_of(DESCRIPTOR, "/", str(tmp_path / "absent"))

    assert (found.kind, str(found)) == (Kind.UNKNOWN, "an unknown file system")


@pytest.mark.skipif(not os.path.exists("/proc/self/mountinfo"), reason="only Linux lists its mounts")
def test_this_machine_knows_where_a_file_and_a_directory_lie(tmp_path: Path) -> None:
    found = file_system_under(tmp_path)
    (tmp_path / "a").symlink_to(tmp_path)

    assert os.path.ismount(found.mount_point)
    assert file_system_under(tmp_path / "a") == found
    assert file_system_under("/proc") == ("proc", "/proc")


def test_what_is_absent_has_no_file_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_system_under(tmp_path / "absent")
