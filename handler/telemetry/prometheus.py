# SPDX-License-Identifier: Apache-2.0
"""A process's metrics as text that Prometheus reads.

Prometheus counts in base units: a metric in milliseconds is told in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from quickthaw.handler.telemetry.metrics import METRICS, Kind, Metric, Metrics, Unit
from quickthaw.snapshot import prometheus_text


def exposition(metrics: Metrics) -> str:
    """The whole text; a metric that has no value yet is left out."""
    return "".join(line + "\n" for metric in METRICS for line in _lines(metric, metrics))


def prometheus_name(metric: Metric) -> str:
    """`first_token_ms` → `quickthaw_first_token_seconds`; a counter's ends in `_total`."""
    name = metric.name
    if metric.unit is Unit.MILLISECONDS:
        name = name.removesuffix("_ms") + "_seconds"
    return f"quickthaw_{name}" + "_total" * (metric.kind is Kind.COUNTER)


def _lines(metric: Metric, metrics: Metrics) -> Iterator[str]:
    numbers = metrics.numbers.get(metric.name, {})
    histograms = metrics.histograms.get(metric.name, {})
    if not numbers and not histograms:
        return
    name, scale = prometheus_name(metric), 1000 if metric.unit is Unit.MILLISECONDS else 1
    yield from prometheus_text.head(name, metric.kind.value, metric.help)
    for start, number in numbers.items():
        yield prometheus_text.value(name, _labels(start), _number(number / scale))
    for start, histogram in histograms.items():
        limits = [_number(limit / scale) for limit in histogram.buckets]
        total = _number(histogram.total / scale)
        yield from prometheus_text.histogram(name, _labels(start), limits, histogram.counts, total)


def _labels(start: str) -> str:
    return f'start="{start}"' if start else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
