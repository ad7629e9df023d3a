# SPDX-License-Identifier: Apache-2.0
"""What a function returned, read as an HTTP response. tests/contract/test_gateway.py has it over the wire."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.snapshot.errors import BadAnswerError
from quickthaw.snapshot.host.http_answer import read_prelude, read_whole

PRELUDE = b'{"statusCode": 201, "headers": {"X-A": "b"}, "cookies": ["c=d"]}' + bytes(8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["statusCode", "headers", "cookies", "body", "isBase64Encoded"])


def test_a_prelude_is_read_when_all_of_it_is_there() -> None:
    for n_bytes in range(len(PRELUDE)):
        assert read_prelude(PRELUDE[:n_bytes]) is None
    found = read_prelude(PRELUDE + b"\0body")

    assert found is not None
    head, body = found
    assert (head.status, body) == (201, b"\0body")
    assert head.headers == [
        ("x-a", "b"),
        ("content-type", "application/octet-stream"),
        ("set-cookie", "c=d"),
    ]
    assert not head.is_event_stream


def test_a_prelude_may_say_nothing() -> None:
    found = read_prelude(b"{}" + bytes(8))

    assert found is not None
    assert found[0].status == 200


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"not JSON" + bytes(8), "not JSON"),
        (b"[1]" + bytes(8), "not an object"),
        (b"x" * 70_000, "no end of the prelude"),
        (b'{"statusCode": 42}' + bytes(8), "statusCode"),
    ],
)
def test_what_is_no_prelude(data: bytes, said: str) -> None:
    with pytest.raises(BadAnswerError, match=said):
        read_prelude(data)


def test_a_result_that_is_not_json() -> None:
    with pytest.raises(BadAnswerError, match="not JSON"):
        read_whole(b"\xff")


def test_a_status_may_be_text_as_api_gateway_has_it() -> None:
    assert read_whole(b'{"statusCode": "404"}')[0].status == 404


@given(st.dictionaries(FIELDS, JSON) | JSON)
def test_any_result_is_a_response_or_refused(result: object) -> None:
    try:
        head, body = read_whole(json.dumps(result).encode())
    except BadAnswerError:
        return
    assert 200 <= head.status < 600
    assert isinstance(body, bytes)
    for name, value in head.headers:
        assert name.isascii()
        assert not set("\r\n\0") & set(value)
        value.encode("latin-1")
