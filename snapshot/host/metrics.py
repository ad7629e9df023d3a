# SPDX-License-Identifier: Apache-2.0
"""What the host counts of starts and requests, since it was started."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from quickthaw.snapshot.errors import (
    FunctionExitedError,
    FunctionInitError,
    FunctionTimeoutError,
    HostStoppedError,
    SnapshotError,
    TooManyRequestsError,
)

# Upper limits, in seconds: a warm empty function takes under a millisecond, a model's answer a minute.
_LIMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_OUTCOMES = {
    TooManyRequestsError: "refused",
    HostStoppedError: "stopped",
    FunctionInitError: "init_failed",
    FunctionTimeoutError: "timed_out",
    FunctionExitedError: "exited",
}


class Histogram:
    """How many durations there were up to each limit, and above them all."""

    def __init__(self, limits_s: Sequence[float] = _LIMITS_S) -> None:
        self.limits_s = limits_s
        self.counts = [0] * (len(limits_s) + 1)
        self.total_s = 0.0

    def add(self, elapsed_ns: int) -> None:
        """Count a duration in the first bucket whose limit is not below it."""
        elapsed_s = elapsed_ns / 1e9
        self.counts[bisect_left(self.limits_s, elapsed_s)] += 1
        self.total_s += elapsed_s


class HostMetrics:
    """Counts; `start_kind` names the engine."""

    def __init__(self, start_kind: str = "cold") -> None:
        self.start_kind = start_kind
        self.n_starts = Counter[str](ready=0, failed=0)  # by result
        self.start = Histogram()
        self.n_requests = Counter[str](answered=0)  # by outcome
        self.request = Histogram()

    def add_start(self, elapsed_ns: int | None) -> None:
        """An instance took so long to be ready; None if it failed."""
        self.n_starts["failed" if elapsed_ns is None else "ready"] += 1
        if elapsed_ns is not None:
            self.start.add(elapsed_ns)

    def add_request(self, elapsed_ns: int, error: SnapshotError | None) -> None:
        """A request was answered, or not, so long after it had come."""
        self.n_requests[outcome(error)] += 1
        self.request.add(elapsed_ns)


def outcome(error: SnapshotError | None) -> str:
    """What became of a request, in a word of few: types of a function's own exceptions may be any number."""
    if error is None:
        return "answered"
    return next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "function_failed")
