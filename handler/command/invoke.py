# SPDX-License-Identifier: Apache-2.0
"""One cold start, watched from outside: spawn the function, send it one event, collect what it says."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from quickthaw.handler.command.answer import Answer, read_messages
from quickthaw.handler.timeline import Phase
from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.invocation import Chunk

HANDLER = "quickthaw.handler.app.lambda_handler"
_OWN_LINE = '{"quickthaw"'
_START_LINE_WAIT_S = 2.0


@dataclass(slots=True)
class ColdStart:
    """What one cold start did. All times are nanoseconds of the monotonic clock.

    `spawned_ns`, `ready_ns`, `first_token_ns` and `end_ns` were measured here; `line` is the function's own
    account.
    """

    spawned_ns: int
    ready_ns: int = 0
    first_token_ns: int = 0
    end_ns: int = 0
    answer: Answer = field(default_factory=Answer)
    line: dict[str, Any] = field(default_factory=dict)
    n_chunks: int = 0

    def phases(self) -> list[Phase]:
        """The function's phases; the first one began when it was spawned, which only the parent knows."""
        phases = [Phase(**each) for each in self.line.get("phases", ())]
        if phases:
            first = phases[0]
            phases[0] = Phase(first.name, self.spawned_ns, first.end_ns, first.size_bytes)
        return phases

    def since_spawn_ms(self, time_ns: int) -> float:
        """Milliseconds from the spawn to `time_ns`."""
        return round((time_ns - self.spawned_ns) / 1e6, 3)

    def to_json(self) -> dict[str, object]:
        """The object that `quickthaw invoke --json` prints."""
        return {
            "text": self.answer.text,
            "token_ids": self.answer.token_ids,
            "finish_reason": self.answer.last.get("finish_reason"),
            "model": self.answer.last.get("model"),
            "usage": self.answer.last.get("usage"),
            "start": "cold",
            "timeline_ms": {
                "ready": self.since_spawn_ms(self.ready_ns),
                "first_token": self.since_spawn_ms(self.first_token_ns),
            },
            **{name: self.line.get(name) for name in ("engine", "bytes_read", "major_faults", "private_mib")},
            "phases": [self._phase_json(phase) for phase in self.phases()],
        }

    def _phase_json(self, phase: Phase) -> dict[str, object]:
        return {
            "name": phase.name,
            "start_ms": self.since_spawn_ms(phase.start_ns),
            "end_ms": self.since_spawn_ms(phase.end_ns),
            "size_bytes": phase.size_bytes,
        }


def run_cold_start(
    event: object,
    environ: Mapping[str, str],
    timeout_s: float,
    on_text: Callable[[str], object],
    on_log: Callable[[str], object],
    handler: str = HANDLER,
) -> ColdStart:
    """Start the function in a new process, ask it `event`, end the process.

    Units: `timeout_s` bounds init, and then the request.
    Raises: FunctionError as the function or its process failed.
    """
    log = _Log(on_log)
    with Instance(ColdEngine(handler), environ, log.take) as instance:
        start = ColdStart(instance.spawned_ns)
        start.ready_ns = instance.wait_ready(timeout_s)
        chunks = instance.invoke(json.dumps(event).encode(), timeout_s)
        for message in read_messages(_timed(chunks, start)):
            on_text(start.answer.take(message))
        # The function writes its line after its answer, so as not to delay it.
        log.has_start_line.wait(_START_LINE_WAIT_S)
    start.line = log.start_line
    if start.n_chunks == 1:
        # An answer that came whole does not show when its first token was there; the function knows.
        ends = [phase.end_ns for phase in start.phases() if phase.name == "first token"]
        start.first_token_ns = ends[0] if ends else start.first_token_ns
    return start


def is_own_line(line: str) -> bool:
    """Whether the function wrote this line of its log about a start or a request."""
    return line.startswith(_OWN_LINE)


class _Log:
    """The function's output: its line about the start is kept, the rest passed on."""

    def __init__(self, on_log: Callable[[str], object]) -> None:
        self._on_log = on_log
        self.start_line: dict[str, Any] = {}
        self.has_start_line = Event()

    def take(self, line: str) -> None:
        """Look at one line."""
        message = json.loads(line) if is_own_line(line) else {}
        if message.get("quickthaw") == "start":
            self.start_line = message
            self.has_start_line.set()
        else:
            self._on_log(line)


def _timed(chunks: Iterable[Chunk], start: ColdStart) -> Iterator[bytes]:
    for chunk in chunks:
        start.n_chunks += 1
        start.first_token_ns = start.first_token_ns or chunk.arrival_ns
        start.end_ns = chunk.arrival_ns
        yield chunk.data
