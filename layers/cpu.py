# SPDX-License-Identifier: Apache-2.0
"""How many CPUs this process may really use: its affinity, cut by its cgroup's quota.

A container sees every core of its host and is throttled when it uses more than its share; threads beyond
the quota only wait for each other.
"""

import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC_CGROUP = Path("/proc/self/cgroup")


def usable_cpus(root: Path = _CGROUP_ROOT, membership: Path = _PROC_CGROUP) -> int:
    """Whole CPUs, at least 1: at a quota of 1.5, a second thread would be throttled half of the time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in map(_quota, _cgroups(root, membership)) if quota is not None]
    return max(1, int(min([allowed, *quotas])))


def _cgroups(root: Path, membership: Path) -> list[Path]:
    """The process's own cpu cgroup and all above it, v2 and v1: each of them limits it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "cpu" if controllers else root
        group = mount / path.lstrip("/")
        found += [group, *(parent for parent in group.parents if parent.is_relative_to(mount))]
    return found


def _quota(cgroup: Path) -> float | None:
    """CPUs granted by one cgroup.

    Source: kernel documentation, admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc (v1).
    """
    try:
        if (cgroup / "cpu.max").exists():
            quota_us, period_us = (cgroup / "cpu.max").read_text().split()
        else:
            quota_us = (cgroup / "cpu.cfs_quota_us").read_text().strip()
            period_us = (cgroup / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if quota_us in ("max", "-1") else int(quota_us) / int(period_us)
