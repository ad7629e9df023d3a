# SPDX-License-Identifier: Apache-2.0
"""How much memory this process may hold, and how much of it is its own.

Its own is anonymous memory, the interpreter's fixed share: Python, numpy, scratch, keys and values, copies
of shards. Pages of mapped files come on top where they are in its page tables; the page cache that is in
nobody's page tables is the kernel's to drop, and counts for nobody.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from quickthaw.layers import cgroup

if TYPE_CHECKING:
    from _typeshed import StrPath


def limit_bytes(
    root: StrPath = cgroup.ROOT,
    membership: StrPath = cgroup.MEMBERSHIP,
) -> int:
    """The least of what the control groups and the machine give."""
    limits = [os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE]
    for group in cgroup.groups("memory", root, membership):
        # v2, and v1, whose "no limit" is a number beyond any machine's memory; v2's is "max"
        text = (cgroup.read(f"{group}/memory.max") or cgroup.read(f"{group}/memory.limit_in_bytes")).strip()
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def anonymous_bytes(statm: StrPath = "/proc/self/statm") -> int:
    """What of this process is in memory and of no file; 0 where the kernel does not say.

    Source: proc_pid_statm(5): resident pages, less those shared.
    """
    fields = cgroup.read(statm).split()
    return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE if len(fields) > 2 else 0
