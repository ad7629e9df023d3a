# SPDX-License-Identifier: Apache-2.0
"""The rules of the embedded metric format's specification, as far as they touch what is written here."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quickthaw.handler.telemetry.embedded import VALUES_LIMIT, embedded
from quickthaw.handler.telemetry.metrics import BY_NAME, Measured

UNITS = {"Milliseconds", "Bytes", "Count", "Count/Second"}  # of those that CloudWatch knows
LINE_LIMIT_BYTES = 256 * 1024


def check(line: dict[str, Any]) -> list[str]:
    """Raises AssertionError where the line breaks a rule; returns the names of its metrics."""
    metadata = line["_aws"]
    assert set(metadata) == {"Timestamp", "CloudWatchMetrics"}
    assert type(metadata["Timestamp"]) is int
    (directive,) = metadata["CloudWatchMetrics"]
    assert set(directive) == {"Namespace", "Dimensions", "Metrics"}
    assert 1 <= len(directive["Namespace"]) <= 255
    for dimension_set in directive["Dimensions"]:
        assert len(dimension_set) <= 30
        assert all(isinstance(line[name], str) and 1 <= len(line[name]) <= 1024 for name in dimension_set)
    assert len(directive["Metrics"]) <= 100
    for metric in directive["Metrics"]:
        assert set(metric) == {"Name", "Unit"}
        assert metric["Unit"] in UNITS
        value = line[metric["Name"]]
        values = value if isinstance(value, list) else [value]
        assert 1 <= len(values) <= 100
        assert all(type(each) in (int, float) for each in values)
    assert len(json.dumps(line)) < LINE_LIMIT_BYTES
    return [metric["Name"] for metric in directive["Metrics"]]


def told(measured: Measured) -> dict[str, Any]:
    line = {"function": "f", "start": "cold", **embedded(measured, "team/a", 1_700_000_000_000)}
    found: dict[str, Any] = json.loads(json.dumps(line))
    assert check(found) == [name for name in measured if measured[name]]
    return found


def test_a_number_and_many() -> None:
    line = told({"first_token_ms": [131.2], "inter_token_ms": [13.5, 12.0], "gc_pause_ms": []})
    assert (line["first_token_ms"], line["inter_token_ms"]) == (131.2, [13.5, 12.0])
    assert "gc_pause_ms" not in line
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "team/a"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=1000))
def test_too_many_values_keep_their_quantiles(values: list[float]) -> None:
    kept = told({"inter_token_ms": values})["inter_token_ms"]
    if len(values) <= VALUES_LIMIT:
        assert kept == (values if len(values) > 1 else values[0])
        return
    ordered = sorted(values)
    assert (kept[0], kept[-1], len(kept)) == (ordered[0], ordered[-1], VALUES_LIMIT)
    for index, value in enumerate(kept):
        place = index * (len(ordered) - 1) / (VALUES_LIMIT - 1)
        assert ordered[int(place)] <= value <= ordered[min(int(place) + 1, len(ordered) - 1)]


def test_every_metric_can_be_told() -> None:
    assert check({"function": "f", "start": "warm", **embedded({n: [1] for n in BY_NAME}, "n", 1)})
