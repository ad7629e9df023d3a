# SPDX-License-Identifier: Apache-2.0
"""A start as a trace for https://ui.perfetto.dev: what the parent saw, and what the function says it did.

Source: the Trace Event Format (complete events "X" and metadata "M"; times in microseconds).
"""

from collections.abc import Iterable, Iterator

from quickthaw.handler.command.invoke import ColdStart
from quickthaw.handler.timeline import Phase

_PARENT, _FUNCTION = 1, 2


def trace_document(start: ColdStart) -> dict[str, object]:
    """Return the trace document. Its clock starts when the function was spawned."""
    seen = [
        Phase("spawn to ready", start.spawned_ns, start.ready_ns),
        Phase("ready to first token", start.ready_ns, start.first_token_ns),
        Phase("first token to last", start.first_token_ns, start.end_ns),
    ]
    events = [_process(_PARENT, "quickthaw invoke"), _process(_FUNCTION, "function")]
    events += [_complete(_PARENT, 1, phase, start) for phase in seen]
    events += [_complete(_FUNCTION, track, phase, start) for track, phase in _tracks(start.phases())]
    other = {key: value for key, value in start.line.items() if key not in ("quickthaw", "phases")}
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": other}


def _process(pid: int, name: str) -> dict[str, object]:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def _complete(pid: int, track: int, phase: Phase, start: ColdStart) -> dict[str, object]:
    return {
        "name": phase.name,
        "ph": "X",
        "pid": pid,
        "tid": track,
        "ts": (phase.start_ns - start.spawned_ns) / 1000,
        "dur": (phase.end_ns - phase.start_ns) / 1000,
        "args": {"size_bytes": phase.size_bytes},
    }


def _tracks(phases: Iterable[Phase]) -> Iterator[tuple[int, Phase]]:
    """Number a track for each phase: on one track, a viewer wants events apart or one inside the other."""
    open_ends: list[list[int]] = []  # per track, when the events that are still open end, innermost last
    for phase in phases:
        open_ends = [[end_ns for end_ns in ends if end_ns > phase.start_ns] for ends in open_ends]
        fitting = (track for track, ends in enumerate(open_ends) if not ends or phase.end_ns <= ends[-1])
        track = next(fitting, len(open_ends))
        if track == len(open_ends):
            open_ends.append([])
        open_ends[track].append(phase.end_ns)
        yield track + 1, phase
