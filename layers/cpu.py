# SPDX-License-Identifier: Apache-2.0
"""How many CPUs this process may really use: its affinity, cut by its cgroup's quota.

A container sees every core of its host and is throttled when it uses more than its share; threads beyond
the quota only wait for each other. Paths are text here: importing pathlib costs 5 ms of a start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import StrPath


def usable_cpus(root: StrPath = "/sys/fs/cgroup", membership: StrPath = "/proc/self/cgroup") -> int:
    """Whole CPUs, at least 1: at a quota of 1.5, a second thread would be throttled half of the time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in map(_quota, _cgroups(root, membership)) if quota is not None]
    return max(1, int(min([allowed, *quotas])))


def _cgroups(root: StrPath, membership: StrPath) -> Iterator[str]:
    """The process's own cpu cgroup and all above it, v2 and v1: each of them limits it."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = os.path.join(root, "cpu") if controllers else os.fspath(root)
        group = path.strip("/")
        while group:
            yield os.path.join(mount, group)
            group = os.path.dirname(group)
        yield mount


def _quota(cgroup: str) -> float | None:
    """CPUs granted by one cgroup.

    Source: kernel documentation, admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc (v1).
    """
    limits = _read(f"{cgroup}/cpu.max").split() or [
        *_read(f"{cgroup}/cpu.cfs_quota_us").split(),
        *_read(f"{cgroup}/cpu.cfs_period_us").split(),
    ]
    if len(limits) != 2 or limits[0] in ("max", "-1"):
        return None
    return int(limits[0]) / int(limits[1])


def _read(path: StrPath) -> str:
    """A file's text; of one that is not there, nothing."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
