# SPDX-License-Identifier: Apache-2.0
"""The control groups that limit this process, v2 and v1.

Paths are text here: importing pathlib costs 5 ms of a start.
Source: cgroups(7), proc_pid_cgroup(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import StrPath

ROOT, MEMBERSHIP = "/sys/fs/cgroup", "/proc/self/cgroup"


def groups(controller: str, root: StrPath = ROOT, membership: StrPath = MEMBERSHIP) -> Iterator[str]:
    """The directories of the process's own group of a controller and of all above it: each limits it."""
    for line in read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = os.path.join(root, controller) if controllers else os.fspath(root)
        group = path.strip("/")
        while group:
            yield os.path.join(mount, group)
            group = os.path.dirname(group)
        yield mount


def read(path: StrPath) -> str:
    """A file's text; of one that is not there, nothing."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
