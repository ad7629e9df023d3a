# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from quickthaw.layers.cpu import usable_cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


def machine(root: Path, membership: str, files: dict[str, str]) -> int:
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "membership").write_text(membership)
    return usable_cpus(root / "cgroup", root / "membership")


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "25000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 8),
        ("0::/pod/box\n", {"pod/box/cpu.max": "max 100000\n", "pod/cpu.max": "300000 100000\n"}, 3),
        (
            "4:cpu,cpuacct:/box\n",
            {"cpu/box/cpu.cfs_quota_us": "400000", "cpu/box/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("4:memory:/box\n", {"cpu/box/cpu.cfs_quota_us": "100000", "cpu/box/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_quota_cuts_affinity(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    assert machine(tmp_path, membership, files) == expected


def test_a_machine_without_cgroups_counts_its_affinity(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path / "absent", tmp_path / "absent") == 8
