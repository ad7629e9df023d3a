# SPDX-License-Identifier: Apache-2.0
"""One line of JSON for each request, and what else is told of it: metrics, spans, and the start before it.

Runs when the answer has left; docs/observability.md describes the members of a line.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from quickthaw.handler.config import MetricsOutput, trace_id
from quickthaw.handler.errors import ConfigurationError
from quickthaw.handler.stream import to_json
from quickthaw.handler.telemetry import embedded, measurements, prometheus, request_line
from quickthaw.handler.telemetry.metrics import Measured, Metrics

if TYPE_CHECKING:
    from quickthaw.handler.request_record import RequestRecord
    from quickthaw.handler.session import Session
    from quickthaw.handler.telemetry.request_line import Json
    from quickthaw.handler.telemetry.spans import SpanWriter
    from quickthaw.handler.timeline import Timeline


_logger = logging.getLogger(__name__)


class RequestLog:
    """Tells of each request, and of the start after its first answer."""

    def __init__(self, session: Session, timeline: Timeline) -> None:
        self._session = session
        self._config = session.config
        self._start: Timeline | None = timeline  # None once it was reported
        self._meter = measurements.Meter(session, timeline.bytes_before)
        self._metrics = Metrics()
        self._spans = _span_writer() if session.config.traces else None

    def report(self, record: RequestRecord) -> None:
        """The last byte of the answer has left."""
        kind = "warm" if self._start is None else self._start.start_kind
        start = self._take_start() if record.has_begun else None
        phases = [] if start is None else measurements.until_ready(start.phases())
        measured = {**measurements.ready(phases), **self._meter.measure(record)}
        if self._config.metrics is not MetricsOutput.OFF:
            self._metrics.add(measured, kind)
        line = self._line(record, measured, kind)
        if line:
            print(to_json(line), flush=True)
        if self._spans is not None:
            self._spans.write(record, request_line.described(record), phases)
        if start is not None:
            self._report_start(start)

    def metrics_text(self) -> str:
        """The totals for Prometheus, and what is measured only when asked for."""
        resident_bytes = self._session.resident_bytes
        if resident_bytes is not None:
            self._metrics.add({"shard_resident_bytes": [resident_bytes]})
        self._metrics.add(self._session.occupancy())
        return prometheus.exposition(self._metrics)

    def _line(self, record: RequestRecord, measured: Measured, kind: str) -> Json:
        """Empty when nothing is to be told."""
        config = self._config
        head = {"quickthaw": "request", "function": request_line.function_name(record), "start": kind}
        members: Json = {}
        if config.logs_requests:
            members |= {"model": self._session.model_name, "engine": self._session.engine_name}
            members |= request_line.described(record) | request_line.summed_up(measured)
            if config.logs_prompts:
                members |= request_line.prompt(record)
        if config.metrics is MetricsOutput.EMF:
            time_ms = time.time_ns() // 1_000_000
            members |= embedded.embedded(measured, config.metrics_namespace, time_ms)
        return head | members if members else {}

    def _take_start(self) -> Timeline | None:
        start, self._start = self._start, None
        return start

    def _report_start(self, start: Timeline) -> None:
        line = start.line(
            engine=self._session.engine_name, bytes_read=self._session.bytes_read, trace_id=trace_id()
        )
        print(to_json(line), flush=True)


def _span_writer() -> SpanWriter | None:
    from quickthaw.handler.telemetry.spans import SpanWriter

    try:
        return SpanWriter()
    except ConfigurationError as exc:  # answers go on without spans
        _logger.error("%s", exc)
        return None
