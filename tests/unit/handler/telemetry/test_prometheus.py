# SPDX-License-Identifier: Apache-2.0
"""The text, as Prometheus's own parser reads it."""

from prometheus_client.parser import text_string_to_metric_families

from quickthaw.handler.telemetry.metrics import METRICS, Kind, Metrics
from quickthaw.handler.telemetry.prometheus import exposition, prometheus_name


def parsed(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    families = list(text_string_to_metric_families(exposition(metrics)))
    assert all(family.type in ("counter", "gauge", "histogram") for family in families)
    return {
        (sample.name, sample.labels.get("start", ""), sample.labels.get("le", "")): sample.value
        for family in families
        for sample in family.samples
    }


def test_nothing_yet() -> None:
    assert exposition(Metrics()) == ""


def test_a_counter_and_a_gauge() -> None:
    metrics = Metrics()
    metrics.add({"requests": [2], "kv_bytes": [4096]}, "cold")
    metrics.add({"shard_resident_bytes": [8192]})
    assert parsed(metrics) == {
        ("quickthaw_requests_total", "cold", ""): 2,
        ("quickthaw_kv_bytes", "cold", ""): 4096,
        ("quickthaw_shard_resident_bytes", "", ""): 8192,
    }


def test_a_histogram_counts_upwards_in_seconds() -> None:
    metrics = Metrics()
    metrics.add({"first_token_ms": [120.0]}, "cold")
    metrics.add({"first_token_ms": [30.5, 99_999.0]}, "warm")
    found = parsed(metrics)
    name = "quickthaw_first_token_seconds"
    assert found[f"{name}_bucket", "cold", "0.1"] == 0
    assert found[f"{name}_bucket", "cold", "0.15"] == 1
    assert found[f"{name}_bucket", "warm", "10"] == 1
    assert found[f"{name}_bucket", "warm", "+Inf"] == 2
    assert found[f"{name}_count", "warm", ""] == 2
    assert found[f"{name}_sum", "warm", ""] == 100.0295


def test_every_metric_can_be_told() -> None:
    metrics = Metrics()
    metrics.add({metric.name: [1.5] for metric in METRICS}, "cold")
    names = {name for name, _, _ in parsed(metrics)}
    for metric in METRICS:
        suffix = "_count" if metric.kind is Kind.HISTOGRAM else ""
        assert prometheus_name(metric) + suffix in names
