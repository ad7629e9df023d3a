# SPDX-License-Identifier: Apache-2.0
"""A start as a trace: on one track, events lie apart or one inside the other."""

import json
from itertools import combinations
from typing import Any

from quickthaw.handler.command.trace import trace_document
from tests.unit.handler.command import starts


def _events() -> list[dict[str, Any]]:
    document = json.loads(json.dumps(trace_document(starts.make())))
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_every_phase_is_an_event_counted_from_the_spawn() -> None:
    events = {event["name"]: event for event in _events() if event["ph"] == "X"}

    assert {phase.name for phase in starts.PHASES} < events.keys()
    assert (events["interpreter start"]["ts"], events["interpreter start"]["dur"]) == (0, 8_000)
    assert (events["numpy"]["ts"], events["numpy"]["dur"]) == (8_000, 41_000)
    assert events["layer-000"]["args"] == {"size_bytes": 500}


def test_the_parent_has_tracks_of_its_own() -> None:
    names = {event["pid"]: event["args"]["name"] for event in _events() if event["ph"] == "M"}
    timed = [(names[event["pid"]], event["name"]) for event in _events() if event["ph"] == "X"]

    assert sorted(names.values()) == ["function", "quickthaw invoke"]
    parent = [name for process, name in timed if process == "quickthaw invoke"]
    assert parent == ["spawn to ready", "ready to first token", "first token to last"]


def test_events_of_a_track_nest() -> None:
    start = starts.make()
    overlap = {"name": "prefetch", "start_ns": 52_500_000, "end_ns": 53_500_000, "size_bytes": 0}
    start.line["phases"].insert(5, overlap)  # layer-000 begins inside it and ends outside
    events = [event for event in trace_document(start)["traceEvents"] if event["ph"] == "X"]  # type: ignore[attr-defined]

    assert len({event["tid"] for event in events}) == 2
    for one, other in combinations(events, 2):
        if (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
            first, second = sorted((one, other), key=lambda event: (event["ts"], -event["dur"]))
            end = first["ts"] + first["dur"]
            assert second["ts"] >= end or second["ts"] + second["dur"] <= end


def test_what_the_function_counted_is_kept() -> None:
    other = trace_document(starts.make())["otherData"]
    assert other["major_faults"] == 3  # type: ignore[index]
    assert "phases" not in other  # type: ignore[operator]
