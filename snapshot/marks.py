# SPDX-License-Identifier: Apache-2.0
"""When each step of this process's start ended, and what kind of start that was.

A mark ends the phase that began at the mark before it. The first one has no beginning of its own: only
whoever spawned the process knows when that was. A restore is a start of its own: the capture's marks are no
part of it, and may be of another clock.
"""

from time import monotonic_ns

_marks: list[tuple[str, int]] = []
_start_kind = "cold"


def mark(name: str) -> None:
    """End the phase `name` now."""
    _marks.append((name, monotonic_ns()))


def marks() -> list[tuple[str, int]]:
    """Every mark so far, oldest first, in nanoseconds of the monotonic clock."""
    return list(_marks)


def restart(kind: str) -> None:
    """The process has just been restored: forget what was before, and end the phase `restore`."""
    global _start_kind
    _marks.clear()
    _start_kind = kind
    mark("restore")


def start_kind() -> str:
    """How this process came to be: "cold", or what restored it ("zygote", "criu", "snapstart")."""
    return _start_kind
