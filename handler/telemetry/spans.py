# SPDX-License-Identifier: Apache-2.0
"""A request as OpenTelemetry spans, made from what was stamped on the way, when the answer has left.

    request                     event → last byte out; child of the caller's span, if it named one
    ├── start                   the process's, in its first request's trace: its phases are inside it
    ├── tokenise, layer-000 map, layer-000 compute, …, head     up to the first token
    └── decode                  first token → last

opentelemetry-sdk reads its own variables: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_ENDPOINT
and so on. A tracer provider that is there already, as under AWS's layer, is used as it is.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from quickthaw.handler.config import trace_exporters
from quickthaw.handler.errors import ConfigurationError
from quickthaw.handler.telemetry.request_line import find_trace
from quickthaw.handler.timeline import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context import Context

    from quickthaw.handler.request_record import RequestRecord
    from quickthaw.handler.telemetry.trace_context import TraceContext

# The members of a request's line that are attributes of its span, under OpenTelemetry's names for them.
_ATTRIBUTES = {
    "request_id": "faas.invocation_id",
    "route": "http.route",
    "status": "http.response.status_code",
    "finish_reason": "gen_ai.response.finish_reason",
}


class SpanWriter:
    """Turns records into spans."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Raises: ConfigurationError when OTEL_TRACES_EXPORTER names what is not installed."""
        self._provider = provider or _configured_provider()
        self._tracer = self._provider.get_tracer("quickthaw")

    def write(
        self,
        record: RequestRecord,
        described: Mapping[str, Any],
        start: Sequence[Phase],
    ) -> None:
        """Tell of one request; `start` holds the phases of the process's start if this was its first."""
        self._to_epoch_ns = time_ns() - monotonic_ns()
        attributes = {
            name: described[key] for key, name in _ATTRIBUTES.items() if described.get(key) is not None
        }
        span = self._tracer.start_span(
            str(described["route"] or "request"),
            _remote(find_trace(record)),
            SpanKind.SERVER,
            attributes,
            start_time=record.event_ns + self._to_epoch_ns,
        )
        if record.error is not None:
            span.set_status(StatusCode.ERROR, type(record.error).__name__)
        inside = trace.set_span_in_context(span)
        if start:
            whole = Phase("start", start[0].start_ns, start[-1].end_ns)
            inside_start = self._add(whole, inside)
            for phase in start:
                self._add(phase, inside_start)
        for timed in record.spans:
            self._add(Phase(*timed), inside)
        if len(record.token_ns) > 1:
            self._add(Phase("decode", record.token_ns[0], record.token_ns[-1]), inside)
        span.end(record.end_ns + self._to_epoch_ns)
        self._flush()

    def _add(self, phase: Phase, parent: Context) -> Context:
        span = self._tracer.start_span(
            phase.name,
            parent,
            attributes={"size_bytes": phase.size_bytes} if phase.size_bytes else None,
            start_time=phase.start_ns + self._to_epoch_ns,
        )
        span.end(phase.end_ns + self._to_epoch_ns)
        return trace.set_span_in_context(span)

    def _flush(self) -> None:
        """Export now: once the next event is asked for, this process may be frozen."""
        flush = getattr(self._provider, "force_flush", None)  # only the SDK's providers have it
        if flush is not None:
            flush()


def _remote(caller: TraceContext | None) -> Context | None:
    """The caller's span as a parent."""
    if caller is None or caller.parent_id is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if caller.is_sampled else TraceFlags.DEFAULT)
    context = SpanContext(
        int(caller.trace_id, 16), int(caller.parent_id, 16), is_remote=True, trace_flags=flags
    )
    return trace.set_span_in_context(NonRecordingSpan(context))


def _configured_provider() -> trace.TracerProvider:
    """The provider of this process, or one for the exporters that the environment names."""
    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    provider = TracerProvider()
    for name in trace_exporters():
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)
    return provider


def _exporter(name: str) -> SpanExporter:
    """`otlp` is whichever of its protocols is installed."""
    for entry in entry_points(group="opentelemetry_traces_exporter"):
        if entry.name == name or (name == "otlp" and entry.name.startswith("otlp_")):
            exporter: SpanExporter = entry.load()()
            return exporter
    raise ConfigurationError(
        f"OTEL_TRACES_EXPORTER={name!r}: no such exporter is installed; "
        "for otlp, install opentelemetry-exporter-otlp-proto-http"
    )
