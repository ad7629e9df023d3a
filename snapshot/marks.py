# SPDX-License-Identifier: Apache-2.0
"""When each step of this process's start ended.

A mark ends the phase that began at the mark before it. The first one has no beginning of its own: only
whoever spawned the process knows when that was.
"""

from time import monotonic_ns

_marks: list[tuple[str, int]] = []


def mark(name: str) -> None:
    """End the phase `name` now."""
    _marks.append((name, monotonic_ns()))


def marks() -> list[tuple[str, int]]:
    """Every mark so far, oldest first, in nanoseconds of the monotonic clock."""
    return list(_marks)
