# SPDX-License-Identifier: Apache-2.0
"""One line of JSON for each request, and what else is told of it: metrics, spans, and the start before it.

Runs when the answer has left; docs/observability.md describes the members of a line.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from quickthaw.handler.config import MetricsOutput, trace_id
from quickthaw.handler.stream import to_json
from quickthaw.handler.telemetry import embedded, measurements, prometheus, request_line
from quickthaw.handler.telemetry.metrics import Measured, Metrics

if TYPE_CHECKING:
    from quickthaw.handler.request_record import RequestRecord
    from quickthaw.handler.session import Session
    from quickthaw.handler.telemetry.request_line import Json
    from quickthaw.handler.timeline import Timeline


class RequestLog:
    """Tells of each request, and of the start after its first answer."""

    def __init__(self, session: Session, timeline: Timeline) -> None:
        self._session = session
        self._config = session.config
        self._start: Timeline | None = timeline  # None once it was reported
        self._meter = measurements.Meter(session)
        self._metrics = Metrics()

    def report(self, record: RequestRecord) -> None:
        """The last byte of the answer has left."""
        kind = "warm" if self._start is None else "cold"
        measured = self._meter.measure(record)
        if self._start is not None and record.has_begun:
            measured = {**measurements.ready(self._start.phases()), **measured}
        if self._config.metrics is not MetricsOutput.OFF:
            self._metrics.add(measured, kind)
        self._write(record, measured, kind)
        if record.has_begun:
            self._report_start()

    def metrics_text(self) -> str:
        """The totals for Prometheus, and what is measured only when asked for."""
        resident_bytes = self._session.resident_bytes
        if resident_bytes is not None:
            self._metrics.add({"shard_resident_bytes": [resident_bytes]})
        return prometheus.exposition(self._metrics)

    def _write(self, record: RequestRecord, measured: Measured, kind: str) -> None:
        config, members = self._config, {}
        if config.logs_requests:
            model: Json = {"model": self._session.model_name, "engine": self._session.engine_name}
            members = model | request_line.described(record) | request_line.summed_up(measured)
        if config.logs_requests and config.logs_prompts:
            members |= request_line.prompt(record)
        if config.metrics is MetricsOutput.EMF:
            time_ms = time.time_ns() // 1_000_000
            members |= embedded.embedded(measured, config.metrics_namespace, time_ms)
        if members:
            head = {"quickthaw": "request", "function": request_line.function_name(record), "start": kind}
            print(to_json(head | members), flush=True)

    def _report_start(self) -> None:
        timeline, self._start = self._start, None
        if timeline is not None:
            line = timeline.line(
                engine=self._session.engine_name, bytes_read=self._session.bytes_read, trace_id=trace_id()
            )
            print(to_json(line), flush=True)
