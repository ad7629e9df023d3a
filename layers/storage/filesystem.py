# SPDX-License-Identifier: Apache-2.0
"""Which kind of file system a file lies on: it decides whether page faults may fetch the file's bytes.

The kernel says of an open file by which mount it was reached, and lists every mount, one a line:

    /proc/self/fdinfo/5         mnt_id:   36
    /proc/self/mountinfo        36 35 98:0 /root /mount\\040point rw,noatime master:1 - ext4 /dev/root rw
                                                                  optional fields     ↑ the type

So a bind mount, a mount over another and a symbolic link need no thought. A kernel without mnt_id (gVisor's)
leaves the longest mount point above the path, the last of several. About 60 µs.
Source: proc_pid_mountinfo(5), proc_pid_fdinfo(5).
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import StrPath

_PROC = "/proc/self"
_LOCAL = (
    "bcachefs btrfs erofs exfat ext2 ext3 ext4 f2fs hfsplus iso9660 jfs ntfs ntfs3 overlay ramfs reiserfs "
    "rootfs squashfs tmpfs ubifs udf vfat xfs zfs"
)
_NETWORK = (  # or from the machine that this one is a guest of
    "9p afs beegfs ceph cifs cvmfs gfs2 gpfs lustre nfs nfs4 ocfs2 orangefs prl_fs smb3 vboxsf virtiofs "
    "wekafs"
)


class Kind(Enum):
    """What answers a page fault.

    LOCAL: the kernel, from memory or a disk of this machine.
    NETWORK: a server, a round trip later: NFS, which EFS and S3 Files are, too.
    FUSE: another process, which may have to ask a server: mountpoint-s3, s3fs, sshfs.
    UNKNOWN: nobody can say; taken for slow.
    """

    LOCAL = "local"
    NETWORK = "network"
    FUSE = "FUSE"
    UNKNOWN = "unknown"


class FileSystem(NamedTuple):
    """A mounted file system: its type as the kernel calls it, and where it is mounted."""

    type: str
    mount_point: str

    @property
    def kind(self) -> Kind:
        """What answers a page fault on it."""
        if self.type in _LOCAL.split():
            return Kind.LOCAL
        if self.type in _NETWORK.split():
            return Kind.NETWORK
        is_fuse = self.type in ("fuse", "fuseblk") or self.type.startswith("fuse.")
        return Kind.FUSE if is_fuse else Kind.UNKNOWN

    def __str__(self) -> str:
        return f"{self.type} on {self.mount_point}" if self.mount_point else "an unknown file system"


_UNKNOWN = FileSystem("", "")


def file_system_of(descriptor: int, path: StrPath, proc: str = _PROC) -> FileSystem:
    """The file system of an open file; of no type where the kernel does not tell. `path` led to the file."""
    try:
        mounts = _read(f"{proc}/mountinfo").splitlines()
        mount_id = _mount_id(_read(f"{proc}/fdinfo/{descriptor}"))
    except OSError:
        return _UNKNOWN  # not Linux, or no /proc in this container
    found = _above(os.fsencode(os.path.realpath(path)), mounts) if mount_id is None else _of(mount_id, mounts)
    return _UNKNOWN if found is None else FileSystem(*map(os.fsdecode, found))


def file_system_under(path: StrPath) -> FileSystem:
    """The file system of a file or directory that need not be open. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return file_system_of(descriptor, path)
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _mount_id(fdinfo: bytes) -> bytes | None:
    _, label, rest = fdinfo.partition(b"mnt_id:")
    return rest.split()[0] if label else None


def _of(mount_id: bytes, mounts: list[bytes]) -> tuple[bytes, bytes] | None:
    begin = mount_id + b" "
    return next((_type_and_place(line) for line in mounts if line.startswith(begin)), None)


def _above(path: bytes, mounts: list[bytes]) -> tuple[bytes, bytes] | None:
    """The mount with the longest mount point that `path` is or lies under; the last of equals is on top."""
    found = [mount for mount in map(_type_and_place, mounts) if _is_under(path, mount[1])]
    return max(reversed(found), key=lambda mount: len(mount[1]), default=None)


def _is_under(path: bytes, mount_point: bytes) -> bool:
    return path == mount_point or path.startswith(mount_point.rstrip(b"/") + b"/")


def _type_and_place(line: bytes) -> tuple[bytes, bytes]:
    mount, _, source = line.partition(b" - ")  # a field of its own: spaces inside of fields are escaped
    return _unescaped(source.split(b" ", 1)[0]), _unescaped(mount.split(b" ", 5)[4])


def _unescaped(field: bytes) -> bytes:
    r"""The kernel writes space, tab, newline, backslash and # as \040 and so on: three octal digits."""
    first, *others = field.split(b"\\")
    return first + b"".join(_escaped_bytes(others))


def _escaped_bytes(parts: list[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield bytes((int(part[:3], 8),)) + part[3:]
