# SPDX-License-Identifier: Apache-2.0
"""A process's metrics as text that Prometheus reads.

    # HELP quickthaw_first_token_seconds From event to first token.
    # TYPE quickthaw_first_token_seconds histogram
    quickthaw_first_token_seconds_bucket{start="cold",le="0.1"} 1
    …

Prometheus counts in base units: a metric in milliseconds is told in seconds.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from quickthaw.handler.telemetry.metrics import METRICS, Histogram, Kind, Metric, Metrics, Unit

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind.value}"
    for start, number in numbers.items():
        yield f"{name}{_braced(_labels(start))} {_number(number / scale)}"
    for start, histogram in histograms.items():
        yield from _histogram(name, _labels(start), histogram, scale)


def _histogram(name: str, labels: str, histogram: Histogram, scale: float) -> Iterator[str]:
    limits = [*(_number(limit / scale) for limit in histogram.buckets), "+Inf"]
    counts = list(accumulate(histogram.counts))  # each bucket counts those below it too
    for limit, count in zip(limits, counts, strict=True):
        le = f'le="{limit}"'
        yield f"{name}_bucket{_braced(f'{labels},{le}' if labels else le)} {count}"
    yield f"{name}_sum{_braced(labels)} {_number(histogram.total / scale)}"
    yield f"{name}_count{_braced(labels)} {counts[-1]}"


def _labels(start: str) -> str:
    return f'start="{start}"' if start else ""


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
