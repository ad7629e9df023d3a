# SPDX-License-Identifier: Apache-2.0
"""What a line of the log says about one request, beside its metrics.

Nothing in it was written by whoever asked, but for the ids of a trace, which have a form; with
QUICKTHAW_LOG_PROMPTS=on the prompt is the exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from quickthaw.handler.config import trace_id
from quickthaw.handler.errors import UnknownFieldError, outcome
from quickthaw.handler.telemetry import trace_context
from quickthaw.handler.telemetry.measurements import ms, status
from quickthaw.handler.telemetry.metrics import BY_NAME, Measured

if TYPE_CHECKING:
    from quickthaw.handler.request_record import RequestRecord

Json = dict[str, Any]

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_MODEL_PATH = "/v1/models/"
_IN_STATUS = {"requests", "refused_requests", "failed_requests"}
_QUANTILES = {"p50": 0.5, "p99": 0.99}


def described(record: RequestRecord) -> Json:
    """Who asked what, how it ended, and when."""
    xray = trace_context.parse_xray(trace_id() or "")
    trace = find_trace(record)
    line: Json = {
        "request_id": getattr(record.context, "aws_request_id", None),
        "trace_id": None if trace is None else trace.trace_id,
        "xray_trace_id": None if xray is None else xray.xray_id,
        "route": _route(record),
        "status": status(record),
        "is_streamed": record.request is not None and record.request.is_streamed,
        "finish_reason": _finish_reason(record),
        **_error(record),
    }
    stamps = {
        "first_compute_ms": record.first_compute_ns,
        "last_token_ms": record.token_ns[-1] if record.token_ns else 0,
        "bytes_out_ms": record.end_ns,
    }
    return line | {name: ms(at_ns - record.event_ns) for name, at_ns in stamps.items() if at_ns}


def summed_up(measured: Measured) -> Json:
    """Metrics as numbers: of those with any number of values, the quantiles."""
    line: Json = {}
    for name, values in measured.items():
        if name in _IN_STATUS or not values:
            continue
        if not BY_NAME[name].is_many:
            line[name] = values[0]
        else:
            stem, _, unit = name.rpartition("_")
            line |= {f"{stem}_{label}_{unit}": _quantile(values, q) for label, q in _QUANTILES.items()}
    return line


def prompt(record: RequestRecord) -> Json:
    """What was asked, word for word."""
    if record.request is None:
        return {}
    generation = record.request.generation
    return {"prompt": generation.messages or generation.prompts}


def find_trace(record: RequestRecord) -> trace_context.TraceContext | None:
    """The trace that the request belongs to."""
    return trace_context.find(trace_id(), record.header)


def function_name(record: RequestRecord) -> str:
    """The function's name in Lambda."""
    return getattr(record.context, "function_name", None) or "quickthaw"


def _route(record: RequestRecord) -> str | None:
    """Of a few: neither a method nor a name in a path is anything that a caller made up."""
    method, path = record.method, record.path
    if path is None or method is None:
        return path
    if path.startswith(_MODEL_PATH):
        path = _MODEL_PATH + "{model}"
    return f"{method if method in _METHODS else 'OTHER'} {path}"


def _finish_reason(record: RequestRecord) -> str | None:
    if record.completion is None or record.error is not None:
        return None
    return record.completion.finish_reason or "client_gone"


def _error(record: RequestRecord) -> Json:
    """Not its message, which quotes the request, nor a field of the caller's invention."""
    exc = record.error
    if exc is None:
        return {}
    kind = outcome(exc)
    field = None if isinstance(exc, UnknownFieldError) else getattr(exc, "field", None)
    return {"error": {"type": kind.type, "code": kind.code, "param": field, "class": type(exc).__name__}}


def _quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least a share `q` of all does not exceed."""
    return sorted(values)[max(0, ceil(q * len(values)) - 1)]
