# SPDX-License-Identifier: Apache-2.0
"""What memory a process uses, as Linux tells it; None, or nothing, where it does not.

Source: proc_pid_status(5), proc_pid_smaps(5).
"""

import re
from contextlib import suppress
from pathlib import Path

_ANONYMOUS = ("RssAnon", "RssShmem", "VmSwap")  # what files can not give back
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ +(?P<path>/.*)")


def anonymous_bytes(pid: int) -> int | None:
    """Memory of its own, and shared without a file behind it; in memory or swapped out."""
    fields = _status(pid)
    found = [fields[name] for name in _ANONYMOUS if name in fields]
    return sum(found) if found else None


def peak_mib(pid: int) -> int | None:
    """The most that it ever had in memory, mapped files included."""
    peak_bytes = _status(pid).get("VmHWM")
    return None if peak_bytes is None else -(-peak_bytes // (1024 * 1024))


def resident_bytes_by_file(pid: int, suffix: str) -> dict[str, int]:
    """For each file that it has mapped and whose name ends in `suffix`: how much of it is in its memory."""
    resident: dict[str, int] = {}
    path = ""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text(errors="replace").splitlines():
            if (mapping := _MAPPING.fullmatch(line)) is not None:
                path = mapping["path"]
            elif line[:1].isdigit() or line[:1] in "abcdef":  # a mapping of no file
                path = ""
            elif line.startswith("Rss:") and path.endswith(suffix):
                resident[path] = resident.get(path, 0) + _size_bytes(line.partition(":")[2])
    return resident


def _status(pid: int) -> dict[str, int]:
    """The sizes in /proc/PID/status, in bytes."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {
            name: _size_bytes(value)
            for name, _, value in (line.partition(":") for line in lines)
            if value.endswith(" kB")
        }
    return {}


def _size_bytes(text: str) -> int:
    return int(text.split()[0]) * 1024
