# SPDX-License-Identifier: Apache-2.0
"""How many CPUs this process may really use: its affinity, cut by its cgroup's quota.

A container sees every core of its host and is throttled when it uses more than its share; threads beyond
the quota only wait for each other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from quickthaw.layers import cgroup

if TYPE_CHECKING:
    from _typeshed import StrPath


def usable_cpus(root: StrPath = cgroup.ROOT, membership: StrPath = cgroup.MEMBERSHIP) -> int:
    """Whole CPUs, at least 1: at a quota of 1.5, a second thread would be throttled half of the time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in map(_quota, cgroup.groups("cpu", root, membership)) if quota is not None]
    return max(1, int(min([allowed, *quotas])))


def _quota(group: str) -> float | None:
    """CPUs granted by one cgroup.

    Source: kernel documentation, admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc (v1).
    """
    limits = cgroup.read(f"{group}/cpu.max").split() or [
        *cgroup.read(f"{group}/cpu.cfs_quota_us").split(),
        *cgroup.read(f"{group}/cpu.cfs_period_us").split(),
    ]
    if len(limits) != 2 or limits[0] in ("max", "-1"):
        return None
    return int(limits[0]) / int(limits[1])
