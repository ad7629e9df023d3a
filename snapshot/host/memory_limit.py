# SPDX-License-Identifier: Apache-2.0
"""Ends a function process that uses more memory than it may.

    cgroup v2, v1   the kernel does it, at once and exactly, where this process may make groups
    watched         elsewhere: a thread looks at each process every 50 ms, and kills

A group counts the pages that its processes touch first, files' too, and takes those of files back before it
kills. Watching counts what no file stands behind, of the process itself and not of its children. RLIMIT_AS
is no use: it counts mappings, and weights are mapped. Either way the process ends by SIGKILL, as on Lambda.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, …/cgroup-v1/memory.html; cgroups(7).
"""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from quickthaw.snapshot.host.instance import Instance, State
from quickthaw.snapshot.host.process_memory import anonymous_bytes

_MIB = 1024 * 1024
_WATCH_S = 0.05
_GROUP = re.compile(r"quickthaw-(?P<host>\d+)-\d+")


class MemoryLimit(Protocol):
    """A context manager: at the end of it nothing is left of it. `how` names the way for a person."""

    how: str

    def apply(self, instance: Instance) -> None:
        """Limit an instance that has just been started; from any thread."""
        ...

    def __enter__(self) -> "MemoryLimit": ...

    def __exit__(self, *exc_info: object) -> None: ...


def memory_limit(limit_mib: int) -> MemoryLimit:
    """The best way there is on this machine."""
    for parent, limit_file in group_parents(Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")):
        with suppress(OSError):
            return GroupLimit(limit_mib, parent, limit_file)
    return WatchedLimit(limit_mib)


class GroupLimit:
    """A control group for each process, below `parent`."""

    def __init__(self, limit_mib: int, parent: Path, limit_file: str) -> None:
        """Raises: OSError when groups cannot be made, or not be limited, there."""
        self.how = f"the kernel, in {parent}"
        self._limit_bytes = limit_mib * _MIB
        self._parent = parent
        self._limit_file = limit_file
        self._numbers = count(1)
        self._fallback = WatchedLimit(limit_mib)
        self._remove_those_of_ended_hosts()
        self._make().rmdir()

    def apply(self, instance: Instance) -> None:
        """Put the process into a group of its own."""
        self._remove_empty()
        try:
            group = self._make()
            (group / "cgroup.procs").write_text(str(instance.pid))
        except OSError:
            if instance.state is not State.DEAD:
                self._fallback.apply(instance)  # to make a group is one right, to move a process another

    def __enter__(self) -> "GroupLimit":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._fallback.__exit__()
        self._remove_empty()

    def groups(self) -> list[Path]:
        """Those there are now."""
        return list(self._parent.glob(f"quickthaw-{os.getpid()}-*"))

    def _make(self) -> Path:
        group = self._parent / f"quickthaw-{os.getpid()}-{next(self._numbers)}"
        group.mkdir()
        try:
            (group / self._limit_file).write_text(str(self._limit_bytes))
            for name, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", self._limit_bytes)):
                if (group / name).exists():  # where swap is counted: it must not help out
                    (group / name).write_text(str(value))
            if (group / "memory.oom.group").exists():
                (group / "memory.oom.group").write_text("1")  # its children with it
        except OSError:
            group.rmdir()
            raise
        return group

    def _remove_empty(self) -> None:
        for group in self.groups():
            with suppress(OSError):  # somebody is in it
                group.rmdir()

    def _remove_those_of_ended_hosts(self) -> None:
        for group in self._parent.glob("quickthaw-*"):
            found = _GROUP.fullmatch(group.name)
            if found is not None and not Path(f"/proc/{found['host']}").exists():
                with suppress(OSError):
                    group.rmdir()


class WatchedLimit:
    """Looks at each process's memory, and kills."""

    def __init__(self, limit_mib: int) -> None:
        self.how = f"looking at each process every {_WATCH_S * 1000:.0f} ms"
        self._limit_bytes = limit_mib * _MIB
        self._watched: set[Instance] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def apply(self, instance: Instance) -> None:
        """Look at this one too."""
        with self._lock:
            self._watched.add(instance)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="memory-limit", daemon=True)
                self._thread.start()

    def __enter__(self) -> "WatchedLimit":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_WATCH_S):
            with self._lock:
                watched = list(self._watched)
            for instance in watched:
                if (anonymous_bytes(instance.pid) or 0) > self._limit_bytes:
                    instance.kill()
                if instance.state is State.DEAD:
                    with self._lock:
                        self._watched.discard(instance)


def group_parents(cgroup: Path, mountinfo: Path) -> Iterator[tuple[Path, str]]:
    """Where a group could be made, and the name of its limit: beside our own group, or in it."""
    own: dict[str, str] = {}
    for line in cgroup.read_text().splitlines() if cgroup.exists() else ():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    for line in mountinfo.read_text().splitlines() if mountinfo.exists() else ():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, mounted = fields.split(" ")[3:5]
        if kind == "cgroup2" and "" in own:
            group = Path(mounted, os.path.relpath(own[""], root))
            # Not in our own group: one with processes may not have groups that are limited.
            yield (group if own[""] == root else group.parent), "memory.max"
        elif kind == "cgroup" and "memory" in own and "memory" in options.split(" ")[-1].split(","):
            yield Path(mounted, os.path.relpath(own["memory"], root)), "memory.limit_in_bytes"
