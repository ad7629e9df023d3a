# SPDX-License-Identifier: Apache-2.0
"""Where groups are made, in file trees like the kernel's."""

from pathlib import Path

import pytest

from quickthaw.snapshot.host.memory_limit import GroupLimit, group_parents

V2 = "30 23 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:27 / {root}/memory rw - cgroup cgroup rw,memory\n"
    "32 23 0:28 / {root}/cpu rw - cgroup cgroup rw,cpu\n"
)


@pytest.mark.parametrize(
    ("own", "mounts", "expected"),
    [
        ("0::/user.slice/a.scope\n", V2, [("user.slice", "memory.max")]),
        ("0::/\n", V2, [("", "memory.max")]),
        ("4:memory:/docker/1\n3:cpu:/x\n0::/\n", V1, [("memory/docker/1", "memory.limit_in_bytes")]),
        ("5:cpu,memory:/m\n", V1, [("memory/m", "memory.limit_in_bytes")]),
        ("3:cpu:/x\n", V1, []),
        ("", "", []),
    ],
)
def test_where_groups_are_made(
    tmp_path: Path, own: str, mounts: str, expected: list[tuple[str, str]]
) -> None:
    (tmp_path / "cgroup").write_text(own)
    (tmp_path / "mountinfo").write_text(mounts.format(root=tmp_path))
    found = list(group_parents(tmp_path / "cgroup", tmp_path / "mountinfo"))
    assert found == [(tmp_path / parent, name) for parent, name in expected]


def test_a_part_of_the_tree_may_be_mounted(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/docker/1/inner\n")
    (tmp_path / "mountinfo").write_text(f"31 23 0:27 /docker/1 {tmp_path} rw - cgroup cgroup rw,memory\n")
    assert list(group_parents(tmp_path / "cgroup", tmp_path / "mountinfo")) == [
        (tmp_path / "inner", "memory.limit_in_bytes")
    ]


def test_no_groups_where_there_are_none(tmp_path: Path) -> None:
    assert list(group_parents(tmp_path / "absent", tmp_path / "absent")) == []
    with pytest.raises(OSError, match="absent"):
        GroupLimit(128, tmp_path / "absent", "memory.max")


def test_groups_of_hosts_that_were_killed_are_removed(tmp_path: Path) -> None:
    (tmp_path / "quickthaw-999999999-1").mkdir()
    (tmp_path / "quickthaw-1-1").mkdir()  # init is there
    (tmp_path / "somebody-else").mkdir()
    with pytest.raises(OSError, match="not empty"):  # these are files, which the kernel's are not
        GroupLimit(128, tmp_path, "memory.max")
    assert not (tmp_path / "quickthaw-999999999-1").exists()
    assert (tmp_path / "quickthaw-1-1").exists()
    assert (tmp_path / "somebody-else").exists()
