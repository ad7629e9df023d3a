# SPDX-License-Identifier: Apache-2.0
"""What one request measured, under the names of `metrics`: from its record and this process's counters."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from quickthaw.handler import gc_pauses
from quickthaw.handler.errors import outcome
from quickthaw.handler.telemetry.metrics import Measured
from quickthaw.handler.timeline import Phase, major_faults

if TYPE_CHECKING:
    from quickthaw.handler.request_record import RequestRecord
    from quickthaw.handler.session import Session

_OK, _BAD_REQUEST, _SERVER_ERROR = 200, 400, 500


def ms(elapsed_ns: float) -> float:
    """Milliseconds, as precise as anybody reads them."""
    return round(elapsed_ns / 1e6, 3)


def status(record: RequestRecord) -> int:
    """The answer's HTTP status; one that failed after it had begun has said 200."""
    return _OK if record.error is None or record.has_begun else outcome(record.error).status


class Meter:
    """Reads what counts up over a process's life, and says what came since the last request.

    `read_bytes` is what had been read when its process was started.
    """

    def __init__(self, session: Session, read_bytes: int = 0) -> None:
        self._session = session
        self._read_bytes = read_bytes
        self._major_faults = 0
        self._n_evicted = session.n_evicted

    def measure(self, record: RequestRecord) -> Measured:
        """What `record`'s request, and for the first one the start before it, measured."""
        # Of a request that computed nothing there are none, rather than 0.
        kv_bytes = [] if record.completion is None else [self._session.kv_bytes]
        measured = {**_counts(record), **_times(record), **self._resources(), "kv_bytes": kv_bytes}
        if self._session.engine_name == "compiled":  # it changes between two requests at most
            measured["compiled_tokens"] = measured["completion_tokens"]
        return measured

    def _resources(self) -> Measured:
        read_bytes, n_faults = self._session.bytes_read, major_faults()
        n_evicted = self._session.n_evicted
        measured: Measured = {
            "read_bytes": [max(0, read_bytes - self._read_bytes)],
            "major_faults": [n_faults - self._major_faults],
            "gc_pause_ms": [ms(pause_ns) for pause_ns in gc_pauses.take()],
            "shard_mapped_bytes": [self._session.mapped_bytes],
            "shard_evictions": [n_evicted - self._n_evicted],
        }
        self._read_bytes, self._major_faults, self._n_evicted = read_bytes, n_faults, n_evicted
        return measured


def until_ready(phases: list[Phase]) -> list[Phase]:
    """The phases of the start alone; none where the bootstrap did not stamp its end."""
    end_ns = next((phase.end_ns for phase in phases if phase.name == "ready"), 0)
    return [phase for phase in phases if phase.end_ns <= end_ns]


def ready(start: list[Phase]) -> Measured:
    """How long the start took."""
    return {"ready_ms": [ms(start[-1].end_ns - start[0].start_ns)]} if start else {}


def _counts(record: RequestRecord) -> Measured:
    completion = record.completion
    is_failed = record.error is not None and outcome(record.error).status >= _SERVER_ERROR
    return {
        "requests": [1],
        "refused_requests": [int(_BAD_REQUEST <= status(record) < _SERVER_ERROR)],
        "failed_requests": [int(is_failed)],
        "prompt_tokens": [0 if completion is None else completion.n_prompt_tokens],
        "completion_tokens": [0 if completion is None else completion.n_tokens],
    }


def _times(record: RequestRecord) -> Measured:
    stamps = record.token_ns
    if not stamps:
        return {}
    times = {"first_token_ms": [ms(stamps[0] - record.event_ns)]}
    if len(stamps) > 1:
        times["inter_token_ms"] = [ms(after - before) for before, after in pairwise(stamps)]
        times["tokens_per_second"] = [round((len(stamps) - 1) * 1e9 / (stamps[-1] - stamps[0]), 2)]
    return times
