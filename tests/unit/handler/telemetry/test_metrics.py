# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from quickthaw.handler.telemetry.metrics import METRICS, Histogram, Kind, Metrics, Unit, markdown_table

ROOT = Path(__file__).parents[4]


def test_counters_add_up_and_gauges_are_replaced() -> None:
    metrics = Metrics()
    metrics.add({"requests": [1], "kv_bytes": [10]}, "cold")
    metrics.add({"requests": [1], "kv_bytes": [20]}, "warm")
    metrics.add({"requests": [1], "kv_bytes": [30]}, "warm")
    assert metrics.numbers["requests"] == {"cold": 1, "warm": 2}
    assert metrics.numbers["kv_bytes"] == {"cold": 10, "warm": 30}


def test_a_value_falls_into_the_first_bucket_with_room() -> None:
    histogram = Histogram((1, 2, 5))
    histogram.add([0, 1, 1.5, 2, 5, 5.1])
    assert (histogram.counts, histogram.total) == ([2, 2, 1, 1], 14.6)


def test_what_was_not_measured_is_not_there() -> None:
    metrics = Metrics()
    metrics.add({"kv_bytes": [], "gc_pause_ms": []}, "cold")
    assert metrics.numbers == {}
    assert metrics.histograms["gc_pause_ms"]["cold"].counts[0] == 0


def test_an_undefined_metric_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Metrics().add({"undefined": [1]})


def test_the_definitions_are_sound() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric
        assert metric.name.endswith("_ms") == (metric.unit is Unit.MILLISECONDS), metric
        assert metric.name.endswith("_bytes") == (metric.unit is Unit.BYTES), metric
        assert metric.help.endswith("."), metric


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    table = text.partition("<!-- metrics:begin -->\n")[2].partition("\n<!-- metrics:end -->")[0]
    assert table == markdown_table(), "put the output of metrics.markdown_table() into docs/observability.md"
