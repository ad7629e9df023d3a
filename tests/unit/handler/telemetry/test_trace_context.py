# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.handler.telemetry.trace_context import TraceContext, find, parse_traceparent, parse_xray

TRACE, PARENT = "5759e988bd862e3fe1be46a994272793", "53995c3f42cd8ad8"
XRAY = f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1"
W3C = f"00-{TRACE}-{PARENT}-01"


def test_both_forms_say_the_same() -> None:
    expected = TraceContext(TRACE, PARENT, is_sampled=True)
    assert parse_xray(XRAY) == parse_traceparent(W3C) == expected
    assert expected.xray_id == "1-5759e988-bd862e3fe1be46a994272793"


@pytest.mark.parametrize(
    ("header", "parent", "is_sampled"),
    [
        (f"Root=1-{TRACE[:8]}-{TRACE[8:]}", None, False),
        (f"Sampled=0;Root=1-{TRACE[:8]}-{TRACE[8:]}; Parent={PARENT};Lineage=a:b", PARENT, False),
        (f"Self=1-0;Root=1-{TRACE[:8]}-{TRACE[8:]};Parent=x;Sampled=?", None, False),
    ],
)
def test_fields_of_xray_in_any_order(header: str, parent: str | None, is_sampled: bool) -> None:
    assert parse_xray(header) == TraceContext(TRACE, parent, is_sampled)


def test_a_later_version_of_traceparent_may_say_more() -> None:
    assert parse_traceparent(f"01-{TRACE}-{PARENT}-00-more") == TraceContext(TRACE, PARENT, is_sampled=False)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        W3C.upper(),
    ],
)
def test_what_is_not_a_traceparent_is_ignored(header: str) -> None:
    assert parse_traceparent(header) is None


def test_the_callers_own_comes_first() -> None:
    other = W3C.replace("5", "6")
    assert find(XRAY, {"traceparent": other}.get) == parse_traceparent(other)
    assert find(XRAY, {"traceparent": "nonsense"}.get) == parse_xray(XRAY)
    assert find(None, {"x-amzn-trace-id": XRAY}.get) == parse_xray(XRAY)
    assert find(None, {}.get) is None


@given(st.text())
def test_any_text_is_a_trace_or_none(header: str) -> None:
    assert parse_xray(header) is parse_traceparent(header) is None
