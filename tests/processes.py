# SPDX-License-Identifier: Apache-2.0
"""Processes that a test did not start itself."""

import os
from pathlib import Path


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for, in a container without init, has too."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def parent_of(pid: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
