# SPDX-License-Identifier: Apache-2.0
"""What the real function leaves behind: in its log, at /metrics, as spans."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import shards
from tests.contract.functions import Function, running
from tests.unit.handler.telemetry import test_embedded

SOURCE = "from quickthaw.handler.app import lambda_handler as handle\n"
PROMPT = {"prompt": [1, 2, 3], "max_tokens": 5}
METRICS = {
    "version": "2.0",
    "rawPath": "/metrics",
    "requestContext": {"http": {"method": "GET", "path": "/metrics"}},
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"QUICKTHAW_SHARDS": str(shards.make(tmp_path)), "QUICKTHAW_CACHE": str(tmp_path / "cache")}


def request_lines(function: Function, n_lines: int) -> list[dict[str, Any]]:
    """A line is written before the function asks for its next event, so one more answer makes sure of it."""
    function.ask({})
    lines = [json.loads(line) for line in function.output if line.startswith('{"quickthaw":"request"')]
    return lines[:n_lines]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_each_request_leaves_a_line(tmp_path: Path, environ: dict[str, str], is_streamed: bool) -> None:
    with running(tmp_path, SOURCE, environ=environ) as function:
        function.ask({**PROMPT, "stream": is_streamed})
        function.ask({**PROMPT, "max_tokens": 0})
        function.ask({**PROMPT, "stream": is_streamed})
        first, refused, second = request_lines(function, 3)

    assert (first["start"], first["status"], first["finish_reason"]) == ("cold", 200, "length")
    assert (first["prompt_tokens"], first["completion_tokens"], first["is_streamed"]) == (3, 5, is_streamed)
    moments = ["first_compute_ms", "first_token_ms", "last_token_ms", "bytes_out_ms"]
    assert [first[name] for name in moments] == sorted(first[name] for name in moments)
    assert first["ready_ms"] > 0
    assert first["read_bytes"] == first["shard_mapped_bytes"] > 0
    assert first["request_id"] != second["request_id"]
    assert (refused["status"], refused["error"]["param"], refused["start"]) == (400, "max_tokens", "warm")
    assert (second["start"], second["read_bytes"]) == ("warm", 0)
    assert "ready_ms" not in second


def test_lines_are_metrics_where_cloudwatch_is_to_take_them(tmp_path: Path, environ: dict[str, str]) -> None:
    with running(tmp_path, SOURCE, environ={**environ, "QUICKTHAW_METRICS": "emf"}) as function:
        function.ask(PROMPT)
        function.ask({"prompt": 7})
        first, refused = request_lines(function, 2)

    assert {"first_token_ms", "inter_token_ms", "kv_bytes", "ready_ms"} <= set(test_embedded.check(first))
    assert len(first["inter_token_ms"]) == 4
    assert "refused_requests" in test_embedded.check(refused)


def test_prometheus_reads_the_totals(tmp_path: Path, environ: dict[str, str]) -> None:
    with running(tmp_path, SOURCE, environ=environ) as function:
        for _ in range(3):
            function.ask(PROMPT)
        response = function.ask_json(METRICS)

    assert response["statusCode"] == 200
    assert response["headers"]["content-type"].startswith("text/plain")
    samples = {
        (sample.name, sample.labels.get("start")): sample.value
        for family in text_string_to_metric_families(response["body"])
        for sample in family.samples
    }
    assert samples["quickthaw_completion_tokens_total", "cold"] == 5
    assert samples["quickthaw_completion_tokens_total", "warm"] == 10
    assert samples["quickthaw_inter_token_seconds_count", "warm"] == 8
    assert samples["quickthaw_ready_seconds_count", "cold"] == 1
    assert samples["quickthaw_shard_resident_bytes", None] > 0


def test_spans_leave_through_the_sdk(tmp_path: Path, environ: dict[str, str]) -> None:
    traced = {**environ, "QUICKTHAW_TRACE": "otel", "OTEL_TRACES_EXPORTER": "console"}
    with running(tmp_path, SOURCE, environ=traced) as function:
        function.ask(PROMPT)
        function.ask({})
        names = {line.split('"')[3] for line in function.output if line.strip().startswith('"name":')}

    assert {"direct", "start", "ready", "layer-000 map", "layer-000 compute", "decode"} <= names


def test_nothing_of_opentelemetry_is_imported_unless_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    source = """
import sys
from quickthaw.handler import app

def handle(event, context):
    return sorted(sys.modules) if event == "modules" else app.lambda_handler(event, context)
"""
    with running(tmp_path, source, environ=environ) as function:
        before = set(function.ask_json("modules"))
        function.ask(PROMPT)
        after = set(function.ask_json("modules"))

    assert not {name for name in before if name.startswith("quickthaw.handler.telemetry")}
    assert "quickthaw.handler.telemetry.request_log" in after
    assert not {name for name in after if name.startswith("opentelemetry")}
