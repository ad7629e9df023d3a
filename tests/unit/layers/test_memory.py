# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from quickthaw.layers import memory

MACHINE_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {}, MACHINE_BYTES),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE_BYTES),
        ("0::/box\n", {"box/memory.max": "1048576\n"}, 1048576),
        ("0::/pod/box\n", {"pod/box/memory.max": "max\n", "pod/memory.max": "4096\n"}, 4096),
        ("4:memory:/box\n", {"memory/box/memory.limit_in_bytes": "8192\n"}, 8192),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE_BYTES),
    ],
)
def test_the_least_of_all_limits_holds(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)

    assert memory.limit_bytes(tmp_path / "cgroup", tmp_path / "membership") == expected


def test_own_memory_is_what_is_of_no_file() -> None:
    before_bytes = memory.anonymous_bytes()
    kept = bytearray(os.urandom(32 << 20))

    assert memory.anonymous_bytes() - before_bytes > 28 << 20
    assert memory.anonymous_bytes("/nonexistent") == 0
    del kept
