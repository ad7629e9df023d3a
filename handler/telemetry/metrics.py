# SPDX-License-Identifier: Apache-2.0
"""Every metric, defined once, and this process's totals.

`prometheus` writes the totals as text, `embedded` says what a request added, in CloudWatch's format;
docs/observability.md has the table. A name ends in its unit, as it stands in the log; all but what is
measured when asked for is kept apart by how the process was started ("cold" or "warm").
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

Measured = Mapping[str, Sequence[float]]  # name → what one request measured; most have one value


class Kind(Enum):
    """What becomes of a new value; the names are Prometheus's.

    COUNTER: it is added to the total. GAUGE: it replaces the last one. HISTOGRAM: it is counted in the first
    bucket that has room for it, and a request may have many.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(Enum):
    """CloudWatch's name of a unit."""

    COUNT = "Count"
    BYTES = "Bytes"
    MILLISECONDS = "Milliseconds"
    PER_SECOND = "Count/Second"


class Metric(NamedTuple):
    """A definition; `buckets` are the upper limits of a histogram's, and one more takes what is above."""

    name: str
    kind: Kind
    unit: Unit
    help: str
    buckets: tuple[float, ...] = ()
    is_many: bool = False  # a request has any number of them, told in the log by their quantiles


_START_MS = (10, 25, 50, 100, 150, 200, 300, 500, 1000, 2500, 5000, 10_000)
_TOKEN_MS = (1, 2.5, 5, 10, 15, 20, 30, 50, 75, 100, 250, 500, 1000)
_PAUSE_MS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
_RATES = (1, 2, 5, 10, 20, 40, 60, 80, 100, 150, 200, 400)

METRICS = (
    Metric("requests", Kind.COUNTER, Unit.COUNT, "Requests answered, however."),
    Metric("refused_requests", Kind.COUNTER, Unit.COUNT, "Of these, those with a status of 400 to 499."),
    Metric("failed_requests", Kind.COUNTER, Unit.COUNT, "Of these, those with an error of the function's."),
    Metric("prompt_tokens", Kind.COUNTER, Unit.COUNT, "Tokens read."),
    Metric("completion_tokens", Kind.COUNTER, Unit.COUNT, "Tokens written."),
    Metric("compiled_tokens", Kind.COUNTER, Unit.COUNT, "Of these, those the compiled engine computed."),
    Metric(
        "ready_ms",
        Kind.HISTOGRAM,
        Unit.MILLISECONDS,
        "From the bootstrap's first line to asking for the first event.",
        _START_MS,
    ),
    Metric("first_token_ms", Kind.HISTOGRAM, Unit.MILLISECONDS, "From event to first token.", _START_MS),
    Metric(
        "inter_token_ms", Kind.HISTOGRAM, Unit.MILLISECONDS, "From each token to the next.", _TOKEN_MS, True
    ),
    Metric("tokens_per_second", Kind.HISTOGRAM, Unit.PER_SECOND, "Pace after the first token.", _RATES),
    Metric("read_bytes", Kind.COUNTER, Unit.BYTES, "Bytes of shards needed, for the first time or again."),
    Metric("shard_evictions", Kind.COUNTER, Unit.COUNT, "Shards that had to go, for the memory budget."),
    Metric("major_faults", Kind.COUNTER, Unit.COUNT, "Pages that had to be waited for from storage."),
    Metric("gc_pause_ms", Kind.HISTOGRAM, Unit.MILLISECONDS, "Each garbage collection.", _PAUSE_MS, True),
    Metric("kv_bytes", Kind.GAUGE, Unit.BYTES, "Keys and values of the last answer."),
    Metric("shard_mapped_bytes", Kind.GAUGE, Unit.BYTES, "Bytes of shards that are mapped."),
    Metric(
        "shard_resident_bytes",
        Kind.GAUGE,
        Unit.BYTES,
        "Of these, what is in memory; only at `/metrics`.",
    ),
    Metric(
        "batch_requests", Kind.GAUGE, Unit.COUNT, "Requests computed together; only of `quickthaw serve`."
    ),
    Metric("waiting_requests", Kind.GAUGE, Unit.COUNT, "Those that wait to be; only of `quickthaw serve`."),
)
BY_NAME = {metric.name: metric for metric in METRICS}


class Histogram:
    """How many values there were up to each bucket's limit."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Count each value in the first bucket whose limit is not below it."""
        for value in values:
            self.counts[bisect_left(self.buckets, value)] += 1
        self.total += sum(values)


class Metrics:
    """This process's totals, each by the kind of start it belongs to; "" for none."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[str, float]] = {}
        self.histograms: dict[str, dict[str, Histogram]] = {}

    def add(self, measured: Measured, start: str = "") -> None:
        """Take in what was measured."""
        for name, values in measured.items():
            metric = BY_NAME[name]
            if metric.kind is Kind.HISTOGRAM:
                histograms = self.histograms.setdefault(name, {})
                histograms.setdefault(start, Histogram(metric.buckets)).add(values)
            elif metric.kind is Kind.COUNTER:
                numbers = self.numbers.setdefault(name, {})
                numbers[start] = numbers.get(start, 0) + sum(values)
            elif values:
                self.numbers.setdefault(name, {})[start] = values[-1]


def markdown_table() -> str:
    """The definitions as the table in docs/observability.md."""
    from quickthaw.handler.telemetry.prometheus import prometheus_name

    rows = ["| in the log and CloudWatch | unit | Prometheus | kind | |", "|---|---|---|---|---|"]
    rows += [
        f"| `{m.name}` | {m.unit.value} | `{prometheus_name(m)}` | {m.kind.value} | {m.help} |"
        for m in METRICS
    ]
    return "\n".join(rows)
