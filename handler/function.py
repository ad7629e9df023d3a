# SPDX-License-Identifier: Apache-2.0
"""One event in, one answer out: finds what is asked, runs it, sends errors back in the event's own form."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from quickthaw.handler import direct, events, gc_pauses
from quickthaw.handler.config import HandlerConfig, MetricsOutput, Streaming
from quickthaw.handler.errors import RouteNotFoundError, error_body, is_expected, is_fault
from quickthaw.handler.generation import Completion, Piece, always
from quickthaw.handler.http import api
from quickthaw.handler.http.auth import Guard
from quickthaw.handler.http.cors import Cors
from quickthaw.handler.http.http_event import HttpEvent
from quickthaw.handler.request import Request
from quickthaw.handler.request_record import RequestRecord
from quickthaw.handler.session import Session
from quickthaw.handler.timeline import Timeline
from quickthaw.snapshot import afterwards, streaming

if TYPE_CHECKING:
    from quickthaw.handler.telemetry.request_log import RequestLog
    from quickthaw.handler.warming import Warmer

Defer = Callable[[Callable[[], object]], object]

_logger = logging.getLogger(__name__)


class Context(Protocol):
    """What is used of the context that Lambda's runtime client passes."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


class Shape(Protocol):
    """Pieces → the JSON objects of one kind of answer."""

    def whole(self, pieces: list[Piece], completion: Completion) -> dict[str, Any]: ...

    def chunks(self, pieces: Iterator[Piece], completion: Completion) -> Iterator[dict[str, Any]]: ...


class Function:
    """Answers events, one at a time, unless its session takes several; `defer` then is each thread's own."""

    def __init__(self, session: Session, timeline: Timeline, defer: Defer = afterwards.defer) -> None:
        self._session = session
        self._defer = defer
        self._telling = Lock()
        self.is_rehearsing = False  # then nothing is told of a request
        self._begin(timeline)
        if session.config.metrics is not MetricsOutput.OFF:
            gc_pauses.watch()

    @property
    def has_answered(self) -> bool:
        """Whether there was a first token since the start."""
        return self._timeline is None

    def restart(self, config: HandlerConfig) -> None:
        """The process was restored: forget what was noted before, and read no key that was there then.

        `config` differs from that of the capture in what may change under a function: who may ask.
        Raises: ApiKeysError.
        """
        self.is_rehearsing = False
        self._session.config = config
        self._session.take_spans()
        gc_pauses.take()
        self._begin(Timeline(self._session.bytes_read))

    def _begin(self, timeline: Timeline) -> None:
        config = self._session.config
        self._guard = Guard(config.api_keys, config.api_keys_file)
        self._cors = Cors(config.cors_origins)
        self._start = timeline
        self._timeline: Timeline | None = timeline  # None once the first token was stamped
        self._log: RequestLog | None = None  # made after the first answer, with what it imports
        self._warmer: Warmer | None = None  # made with the first ping

    def answer(self, event: object, context: Context) -> Any:
        """What the handler returns: an object, or a StreamedResponse where that is asked for and possible."""
        if events.is_ping(event):
            return self._warm(event, context)
        record = RequestRecord(context)
        wire: events.Event = events.DirectEvent(event)
        try:
            wire = events.parse(event)
            return self._answer(wire, context, record)
        except Exception as exc:
            record.error = exc
            if not is_expected(exc):
                _logger.exception("a request failed unexpectedly")
            elif is_fault(exc):
                _logger.error("%s: %s", type(exc).__name__, exc)  # not every caller is told
            return wire.error(exc)
        finally:
            self._defer(lambda: self._report(record))

    def _warm(self, event: Any, context: Context) -> dict[str, Any]:
        """A ping is no request: none is counted, and the start goes on until there is one."""
        if self._warmer is None:
            from quickthaw.handler.warming import Warmer

            self._warmer = Warmer(self._session)
        try:
            return self._warmer.answer(event, context)
        except Exception as exc:
            _logger.exception("a ping found this environment unfit")
            return error_body(exc)

    def _answer(self, wire: events.Event, context: Context, record: RequestRecord) -> Any:
        if isinstance(wire, HttpEvent):
            return self._serve(wire, context, record)
        record.path = "direct"
        request = direct.read_request(wire.body(), self._session)
        return self._generate(request, direct.DirectShape(self._session), wire, context, record)

    def _serve(self, wire: HttpEvent, context: Context, record: RequestRecord) -> Any:
        wire.is_always_streamed = (
            self._session.config.streaming is Streaming.ALWAYS and streaming.is_available()
        )
        wire.headers |= {"x-request-id": context.aws_request_id, **self._cors.headers(wire.header("origin"))}
        route = api.route(wire.path)
        record.method, record.path, record.header = wire.method, route.path, wire.header
        if wire.method == "OPTIONS":  # a browser asks before it has a key to show
            asked = wire.header("access-control-request-headers")
            return wire.response(204, headers=self._cors.preflight(route.methods, asked))
        if route.is_guarded:
            self._guard.check(wire.header("authorization"))
        route.check_method(wire.method)
        if route.path == api.METRICS:
            return self._show_metrics(wire)
        if route.document is not None:
            return wire.whole(route.document(self._session, wire.path))
        assert route.reader is not None
        request, shape = route.reader(wire.body(), self._session)
        return self._generate(request, shape, wire, context, record)

    def _generate(
        self, request: Request, shape: Shape, wire: events.Event, context: Context, record: RequestRecord
    ) -> Any:
        record.request = request
        deadline_ns = monotonic_ns() + context.get_remaining_time_in_millis() * 1_000_000
        is_wanted = getattr(context, "is_wanted", always)
        generation = request.generation._replace(deadline_ns=deadline_ns, is_wanted=is_wanted)
        completion = self._session.generate(generation)
        # Before there is a response: what fails up to the first token is still an ordinary error.
        record.completion, record.first_compute_ns = completion, monotonic_ns()
        first = next(completion)
        self._mark_first_token(record)
        pieces = record.timed(self._rest(first, completion))
        if request.is_streamed and self._can_stream(wire):
            return wire.stream(shape.chunks(pieces, completion))
        if request.is_streamed and isinstance(wire, HttpEvent):
            return wire.buffered(shape.chunks(pieces, completion))
        return wire.whole(shape.whole(list(pieces), completion))

    def _can_stream(self, wire: events.Event) -> bool:
        is_allowed = self._session.config.streaming is not Streaming.NEVER
        return is_allowed and wire.can_be_streamed and streaming.is_available()

    def _rest(self, first: Piece, completion: Completion) -> Iterator[Piece]:
        with closing(completion):
            yield from chain((first,), completion)

    # --- what is told of it ---

    def _report(self, record: RequestRecord) -> None:
        record.end_ns = monotonic_ns()
        try:
            with self._telling:
                if not self.is_rehearsing:
                    self._request_log().report(record)
        finally:
            self._session.forget()

    def _show_metrics(self, wire: HttpEvent) -> Any:
        if self._session.config.metrics is MetricsOutput.OFF:
            raise RouteNotFoundError(f"no route {api.METRICS}: metrics are off")
        from quickthaw.snapshot.prometheus_text import CONTENT_TYPE

        with self._telling:
            return wire.response(200, self._request_log().metrics_text(), CONTENT_TYPE)

    def _request_log(self) -> RequestLog:
        if self._log is None:
            from quickthaw.handler.telemetry.request_log import RequestLog

            self._log = RequestLog(self._session, self._start)
        return self._log

    def _mark_first_token(self, record: RequestRecord) -> None:
        record.has_begun = True
        record.spans = self._session.take_spans()
        with self._telling:
            timeline, self._timeline = self._timeline, None
        if timeline is not None:
            timeline.mark("event", end_ns=record.event_ns)  # only this one: there may have been pings before
            timeline.mark("first token")
            for span in record.spans:
                timeline.span(*span)
