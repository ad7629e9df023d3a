# SPDX-License-Identifier: Apache-2.0
"""Marks keep their order."""

import pytest

from quickthaw.snapshot import marks


def test_marks_are_kept_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_marks", [])

    marks.mark("a")
    marks.mark("b")

    (first, first_ns), (second, second_ns) = marks.marks()
    assert (first, second) == ("a", "b")
    assert first_ns <= second_ns


def test_nobody_can_change_the_marks_by_accident() -> None:
    before = marks.marks()
    marks.marks().append(("c", 0))
    assert marks.marks() == before


def test_a_restore_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_marks", [])
    monkeypatch.setattr(marks, "_start_kind", "cold")
    marks.mark("init")
    assert marks.start_kind() == "cold"
    marks.restart("zygote")
    marks.mark("ready")
    assert [name for name, _ in marks.marks()] == ["restore", "ready"]
    assert marks.start_kind() == "zygote"
