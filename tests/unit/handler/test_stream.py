# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterator

import pytest

from quickthaw.handler.errors import FieldError
from quickthaw.handler.stream import DONE, events


def test_each_chunk_is_an_event_and_the_last_one_is_done() -> None:
    assert list(events([{"a": 1}, {"b": "x\ny\ud800"}])) == [
        b'data: {"a":1}\n\n',
        b'data: {"b":"x\\ny\\ud800"}\n\n',
        DONE,
    ]


def test_an_event_leaves_before_the_next_chunk_is_computed() -> None:
    computed = []

    def chunks() -> Iterator[dict[str, int]]:
        for n in range(3):
            computed.append(n)
            yield {"n": n}

    stream = events(chunks())
    next(stream)
    assert computed == [0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FieldError("a", "b", "c"), "a: expected b, found c"),
        (KeyError("secret"), "the function failed; its log says why"),
    ],
)
def test_an_error_after_the_first_byte_is_an_event_and_no_end(error: Exception, message: str) -> None:
    def chunks() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise error

    stream = events(chunks())
    next(stream)
    event = next(stream)
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == message
    with pytest.raises(type(error)):
        next(stream)


def test_closing_the_stream_closes_what_feeds_it() -> None:
    closed = []

    def chunks() -> Iterator[dict[str, int]]:
        try:
            while True:
                yield {}
        finally:
            closed.append(True)

    stream = events(chunks())
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert closed == [True]
