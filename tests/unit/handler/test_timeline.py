# SPDX-License-Identifier: Apache-2.0
"""Phases follow each other; spans lie inside them."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from quickthaw.handler.timeline import Phase, Timeline, private_mib
from quickthaw.snapshot import marks


@pytest.fixture(autouse=True)
def _own_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_marks", [])


def test_phases_leave_no_gap() -> None:
    timeline = Timeline()
    for name in ("numpy", "manifest", "map"):
        timeline.mark(name, size_bytes=10)

    phases = timeline.phases()

    assert [phase.name for phase in phases] == ["numpy", "manifest", "map"]
    assert all(before.end_ns == after.start_ns for before, after in pairwise(phases))
    assert all(phase.start_ns <= phase.end_ns for phase in phases)


def test_the_bootstraps_marks_take_their_place_in_time() -> None:
    marks.mark("interpreter")
    marks.mark("awslambdaric")
    timeline = Timeline()
    timeline.mark("numpy")
    marks.mark("ready")  # the bootstrap's again, after the handler's init
    timeline.mark("event")

    names = [phase.name for phase in timeline.phases()]

    assert names == ["interpreter", "awslambdaric", "numpy", "ready", "event"]
    first = timeline.phases()[0]
    assert first.start_ns == first.end_ns


def test_a_span_follows_the_phase_it_lies_in() -> None:
    timeline = Timeline()
    timeline.mark("tokenise")
    timeline.mark("first token")
    around = timeline.phases()[1]
    timeline.span("layer 0", around.start_ns, around.end_ns - 1, 7)

    assert timeline.phases()[1:] == [around, Phase("layer 0", around.start_ns, around.end_ns - 1, 7)]


def test_nothing_was_marked() -> None:
    assert Timeline().phases() == []


def test_line_is_json() -> None:
    timeline = Timeline()
    timeline.span("layer 0", 1, 2, 234)

    line = json.loads(json.dumps(timeline.line(engine="interpreter", bytes_read=1234, trace_id="Root=1")))

    assert line["quickthaw"] == "start"
    assert line["bytes_read"] == 1234
    assert line["engine"] == "interpreter"
    assert line["trace_id"] == "Root=1"
    assert line["major_faults"] >= 0
    assert {"name": "layer 0", "start_ns": 1, "end_ns": 2, "size_bytes": 234} in line["phases"]


def test_private_memory_counts_no_mapped_file(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmRSS:\t  900000 kB\nRssAnon:\t   20480 kB\nRssFile:\t  879520 kB\n")

    assert private_mib(str(status)) == 20.0


def test_private_memory_is_unknown_without_proc(tmp_path: Path) -> None:
    assert private_mib(str(tmp_path / "absent")) is None
