# SPDX-License-Identifier: Apache-2.0
"""Spans as OpenTelemetry's own SDK collects them."""

from time import monotonic_ns, time_ns
from types import SimpleNamespace

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from quickthaw.handler.errors import ConfigurationError, FieldError
from quickthaw.handler.request_record import RequestRecord
from quickthaw.handler.telemetry.spans import SpanWriter
from quickthaw.handler.timeline import Phase
from quickthaw.layers.spans import Span

TRACE, PARENT = "5759e988bd862e3fe1be46a994272793", "53995c3f42cd8ad8"
DESCRIBED = {"request_id": "1-2", "route": "direct", "status": 200, "finish_reason": "stop"}


def record(headers: dict[str, str] | None = None) -> RequestRecord:
    found = RequestRecord(SimpleNamespace(aws_request_id="1-2"))
    found.header = (headers or {}).get
    begin_ns = found.event_ns
    found.spans = [
        Span("layer-000 map", begin_ns + 10, begin_ns + 20, 4096),
        Span("head", begin_ns + 20, begin_ns + 30, 0),
    ]
    found.token_ns = [begin_ns + 40, begin_ns + 60, begin_ns + 90]
    found.end_ns = begin_ns + 100
    return found


def written(found: RequestRecord, start: list[Phase] | None = None) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_ON))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    SpanWriter(provider).write(found, DESCRIBED, start or [])
    return {span.name: span for span in exporter.get_finished_spans()}


def length_ns(span: ReadableSpan) -> int:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.end_time - span.start_time


def test_a_request_and_what_was_inside_it() -> None:
    spans = written(record())
    request = spans["direct"]
    assert set(spans) == {"direct", "layer-000 map", "head", "decode"}
    assert {name: length_ns(span) for name, span in spans.items()} == {
        "direct": 100,
        "layer-000 map": 10,
        "head": 10,
        "decode": 50,
    }
    assert all(span.parent == request.context for name, span in spans.items() if name != "direct")
    assert dict(spans["layer-000 map"].attributes or {}) == {"size_bytes": 4096}
    assert dict(request.attributes or {}) == {
        "faas.invocation_id": "1-2",
        "http.route": "direct",
        "http.response.status_code": 200,
        "gen_ai.response.finish_reason": "stop",
    }
    assert request.start_time is not None
    assert abs(time_ns() - request.start_time) < 60 * 10**9  # of this day, not of the monotonic clock


def test_the_first_request_tells_of_the_start() -> None:
    now_ns = monotonic_ns()
    spans = written(record(), [Phase("numpy", now_ns - 50, now_ns - 20), Phase("ready", now_ns - 20, now_ns)])
    assert spans["start"].parent == spans["direct"].context
    assert length_ns(spans["start"]) == 50
    assert spans["numpy"].parent == spans["ready"].parent == spans["start"].context


def test_it_joins_its_callers_trace() -> None:
    spans = written(record({"traceparent": f"00-{TRACE}-{PARENT}-01"}))
    parent = spans["direct"].parent
    assert parent is not None
    assert (f"{parent.trace_id:032x}", f"{parent.span_id:016x}", parent.is_remote) == (TRACE, PARENT, True)


def test_a_trace_that_is_not_sampled_is_not_told() -> None:
    assert written(record({"traceparent": f"00-{TRACE}-{PARENT}-00"})) == {}


def test_an_error_is_a_status_without_its_message() -> None:
    found = record()
    found.error = FieldError("prompt", "text", "a secret")
    status = written(found)["direct"].status
    assert (status.status_code, status.description) == (trace.StatusCode.ERROR, "FieldError")


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(ConfigurationError, match="OTEL_TRACES_EXPORTER='carrier-pigeon'"):
        SpanWriter()
