# SPDX-License-Identifier: Apache-2.0
"""What a function is invoked with: an HTTP request in one of its forms, or else a direct invocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quickthaw.handler.errors import MalformedRequestError, error_body
from quickthaw.handler.http.http_event import (
    HttpEvent,
    LoadBalancerEvent,
    Payload1Event,
    Payload2Event,
    json_object,
)
from quickthaw.handler.stream import CONTENT_TYPE, events
from quickthaw.snapshot.streaming import StreamedResponse


class DirectEvent:
    """A direct invocation; `body` is the event itself."""

    can_be_streamed = True

    def __init__(self, event: object) -> None:
        self._event = event

    def body(self) -> Mapping[str, Any]:
        """Raises: MalformedRequestError."""
        return json_object(self._event, "the event")

    def whole(self, document: Mapping[str, Any]) -> Any:
        """An answer, or any other document, all at once."""
        return document

    def stream(self, chunks: Iterable[Mapping[str, Any]]) -> StreamedResponse:
        """An answer as it comes."""
        return StreamedResponse(events(chunks, error_body), CONTENT_TYPE)

    def error(self, exc: Exception) -> Any:
        """What went wrong, as an answer: Lambda would send a raised exception with its stack trace."""
        return error_body(exc)


Event = DirectEvent | HttpEvent

# EventBridge's rules and schedules, and a plugin of the Serverless Framework.
_PINGING_SOURCES = ("aws.events", "aws.scheduler", "serverless-plugin-warmup")


def is_ping(event: object) -> bool:
    """Whether this only asks to be kept warm; `warmer` is said by lambda-warmer and lambda-warmer-py."""
    if not isinstance(event, dict) or "requestContext" in event:
        return False
    is_ours = event.get("quickthaw") == "warm"
    return is_ours or event.get("warmer") is True or event.get("source") in _PINGING_SOURCES


def parse(event: object) -> Event:
    """Which kind of event this is.

    Raises: MalformedRequestError for an HTTP request in a form that is not known.
    """
    if not isinstance(event, dict):
        return DirectEvent(event)
    context = event.get("requestContext")
    if isinstance(context, dict):
        if isinstance(context.get("http"), dict):
            return Payload2Event(event, context)
        if isinstance(event.get("httpMethod"), str):
            return LoadBalancerEvent(event) if "elb" in context else Payload1Event(event, context)
    if context is not None or "httpMethod" in event:
        raise MalformedRequestError("an HTTP event: expected payload format 1.0 or 2.0, or a load balancer's")
    return DirectEvent(event)
