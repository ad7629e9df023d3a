# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system that shows the files of a directory, slowly or not at all, and dies when told to.

It speaks the kernel's protocol itself (linux/fuse.h), in a process of its own: one that waits for a page
of a file that it serves would wait for ever. Needs root.
As a program: `fuse.py DIRECTORY MOUNT_POINT FAULTS`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 25, 26, 36, 42
_ROOT = 1
_FOPEN_DIRECT_IO = 1  # which the kernel refuses to map shared
_MAX_READ_BYTES = 1 << 17
_IN = struct.Struct("=IIQQIIIHH")
_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_RDONLY, _MNT_DETACH = 1, 2


class Mount:
    """The mounted directory, and what goes wrong on it."""

    def __init__(self, directory: Path, at: Path) -> None:
        self._arguments = [str(directory), str(at), str(at) + ".json"]
        self._at = at
        self.fail()
        self.start()

    def start(self) -> None:
        """Mounts it, again after `kill`."""
        self._process = subprocess.Popen([sys.executable, __file__, *self._arguments], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"mounted\n"

    def fail(
        self,
        *,
        eio_from: dict[str, int] | None = None,
        denied: tuple[str, ...] = (),
        delay_s: float = 0.0,
        direct_io: bool = False,
    ) -> None:
        """From now on: reads beyond an offset, opens, slow answers, no mmap; without arguments nothing."""
        faults = {"eio_from": eio_from or {}, "denied": denied, "delay_s": delay_s, "direct_io": direct_io}
        path = Path(self._arguments[2])
        path.with_suffix(".new").write_text(json.dumps(faults))
        os.replace(path.with_suffix(".new"), path)

    def kill(self) -> None:
        """The process that serves it is gone; whoever asks is told so."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def unmount(self) -> None:
        """Takes it away."""
        _LIBC.umount2(os.fsencode(self._at), _MNT_DETACH)


@contextmanager
def mounted(directory: Path, at: Path) -> Iterator[Mount]:
    """A mount for as long as the body runs."""
    at.mkdir()
    mount = Mount(directory, at)
    try:
        yield mount
    finally:
        mount.kill()
        mount.unmount()


class _Server:
    def __init__(self, directory: str, at: str, faults: str) -> None:
        self._directory = directory
        self._faults_path = faults
        self._faults: dict[str, Any] = {}
        self._names = {_ROOT: ""}
        self._files: dict[int, int] = {}
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if _LIBC.mount(b"quickthaw-test", os.fsencode(at), b"fuse", _MS_RDONLY, options):
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, 1 << 21)
            except OSError as exc:
                if exc.errno == errno.ENODEV:  # it was unmounted
                    return
                raise
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            self._faults = json.loads(Path(self._faults_path).read_text())
            try:
                error, answer = 0, self._answer(opcode, node, request[_IN.size :])
            except OSError as exc:
                error, answer = -(exc.errno or errno.EIO), b""
            os.write(self._device, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes:
        if opcode == _INIT:
            return struct.pack("=IIIIHHIIHHI28x", 7, 31, _MAX_READ_BYTES, 0, 16, 12, 1 << 17, 1, 0, 0, 0)
        if opcode == _LOOKUP:
            return self._lookup(body[:-1].decode())
        if opcode == _GETATTR:
            return struct.pack("=QII", 0, 0, 0) + self._attributes(self._names[node])
        if opcode == _OPEN:
            return self._open(node)
        if opcode == _READ:
            return self._read(node, *struct.unpack_from("=QQI", body))
        if opcode == _RELEASE:
            os.close(self._files.pop(struct.unpack_from("=Q", body)[0]))
            return b""
        if opcode == _STATFS:
            return bytes(80)
        raise OSError(errno.ENOSYS, "not served")

    def _lookup(self, name: str) -> bytes:
        attributes = self._attributes(name)
        node = os.stat(os.path.join(self._directory, name)).st_ino + _ROOT + 1
        self._names[node] = name
        return struct.pack("=QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _attributes(self, name: str) -> bytes:
        found = os.stat(os.path.join(self._directory, name))
        mode = found.st_mode if name else stat.S_IFDIR | 0o755
        times = [divmod(ns, 10**9) for ns in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
        seconds, nanoseconds = zip(*times, strict=True)
        inode = found.st_ino + _ROOT + 1 if name else _ROOT
        return struct.pack(
            "=QQQQQQIIIIIIIIII", inode, found.st_size, 0, *seconds, *nanoseconds, mode, 1, 0, 0, 0, 4096, 0
        )

    def _open(self, node: int) -> bytes:
        name = self._names[node]
        if name in self._faults["denied"]:
            raise OSError(errno.EACCES, "denied")
        file = os.open(os.path.join(self._directory, name), os.O_RDONLY)
        self._files[file] = file
        return struct.pack("=QII", file, _FOPEN_DIRECT_IO if self._faults["direct_io"] else 0, 0)

    def _read(self, node: int, file: int, offset: int, size: int) -> bytes:
        time.sleep(self._faults["delay_s"])
        if offset + size > self._faults["eio_from"].get(self._names[node], sys.maxsize):
            raise OSError(errno.EIO, "broken")
        return os.pread(file, size, offset)


if __name__ == "__main__":
    server = _Server(*sys.argv[1:])
    print("mounted", flush=True)
    server.serve()
