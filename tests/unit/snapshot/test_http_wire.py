# SPDX-License-Identifier: Apache-2.0
"""Requests out of bytes, however these are cut."""

import pytest

from quickthaw.snapshot.errors import WireError
from quickthaw.snapshot.host.http_wire import Reader, Request, reply

WHOLE = b"POST /a HTTP/1.1\r\nContent-Length: 4\r\nX: a: b \r\n\r\nbody"
EMPTY = b"GET /b HTTP/1.1\r\n\r\n"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n"
    b"3;x=y\r\none\r\nA\r\n0123\r\n6789\r\n0\r\nT: v\r\n\r\n"
)


class Notes:
    """What a reader found."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.bodies: list[list[bytes]] = []
        self.n_ended = 0

    def begin(self, request: Request) -> None:
        self.requests.append(request)
        self.bodies.append([])

    def take(self, data: bytes) -> None:
        self.bodies[-1].append(data)

    def end(self) -> None:
        self.n_ended += 1


@pytest.mark.parametrize("piece_bytes", [1, 2, 5, 50, 1000])
def test_requests_on_one_connection(piece_bytes: int) -> None:
    notes = Notes()
    reader = Reader(notes)
    data = WHOLE + EMPTY + CHUNKED + EMPTY
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])

    assert [(each.method, each.path) for each in notes.requests] == [
        ("POST", "/a"),
        ("GET", "/b"),
        ("POST", "/c"),
        ("GET", "/b"),
    ]
    assert notes.bodies == [[b"body"], [], [b"one", b"0123\r\n6789"], []]
    assert notes.requests[0].headers == {"content-length": "4", "x": "a: b"}
    assert notes.requests[2].trailers == {"t": "v"}
    assert [each.keeps_alive for each in notes.requests] == [True, True, False, True]
    assert notes.n_ended == 4
    assert not reader.is_within_request


def test_a_chunk_is_there_before_the_next() -> None:
    notes = Notes()
    reader = Reader(notes)
    reader.feed(CHUNKED[: CHUNKED.index(b"A\r\n")])
    assert notes.bodies == [[b"one"]]
    assert reader.is_within_request


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: ten\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 201 + b"\r\n",
        b"GET /" + b"x" * 66_000,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
    ],
)
def test_what_is_not_http(data: bytes) -> None:
    with pytest.raises(WireError):
        Reader(Notes()).feed(data)


def test_a_reader_that_was_stopped_finds_nothing() -> None:
    notes = Notes()
    reader = Reader(notes)
    reader.stop()
    reader.feed(WHOLE)
    assert notes.requests == []


def test_a_reply() -> None:
    assert reply(200, b"{}", {"A": "é"}) == (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nA: é\r\nContent-Length: 2\r\n\r\n{}".encode()
    )
