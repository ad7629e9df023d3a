# SPDX-License-Identifier: Apache-2.0
"""Which trace a request belongs to: what X-Ray or a W3C client says of it, in the environment or a header.

    X-Amzn-Trace-Id: Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1
    traceparent:     00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01

Root without its dashes and version is the trace id of traceparent. What does not look like this is ignored:
a header comes from anybody.

Source: https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader;
https://www.w3.org/TR/trace-context/#traceparent-header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """The trace, and the span in it that made the request; ids in hexadecimal."""

    trace_id: str  # 32 digits
    parent_id: str | None  # 16 digits
    is_sampled: bool

    @property
    def xray_id(self) -> str:
        """The trace id as X-Ray writes it."""
        return f"1-{self.trace_id[:8]}-{self.trace_id[8:]}"


def parse_xray(header: str) -> TraceContext | None:
    """Read X-Amzn-Trace-Id; its fields come in any order, among others."""
    fields = dict(part.strip().partition("=")[::2] for part in header.split(";"))
    root = _ROOT.fullmatch(fields.get("Root", ""))
    if root is None:
        return None
    parent = _SPAN_ID.fullmatch(fields.get("Parent", ""))
    return TraceContext(root[1] + root[2], parent and parent[0], fields.get("Sampled") == "1")


def parse_traceparent(header: str) -> TraceContext | None:
    """Read traceparent."""
    found = _TRACEPARENT.fullmatch(header.strip())
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceContext(found[1], found[2], bool(int(found[3], 16) & 1))


def find(xray: str | None, header: Callable[[str], str | None]) -> TraceContext | None:
    """The trace of a request: its client's own, or else the one that Lambda (`xray`) or a balancer began."""
    return (
        parse_traceparent(header("traceparent") or "")
        or parse_xray(xray or "")
        or parse_xray(header("x-amzn-trace-id") or "")
    )
