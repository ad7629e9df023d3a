# SPDX-License-Identifier: Apache-2.0
"""Streamed answers, byte by byte as the Runtime API sees them."""

import json
import logging
import threading
from base64 import b64decode
from collections.abc import Iterator
from socket import create_server, socket

import pytest

from quickthaw.snapshot.errors import StreamSetupError
from quickthaw.snapshot.streaming import HTTP_INTEGRATION_TYPE, StreamedResponse, send

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class Peer:
    """Keeps what one connection sends; then sends `reply`, unless it hung up at `hang_up_at`."""

    def __init__(self, reply: bytes = ACCEPTED, hang_up_at: bytes | None = None) -> None:
        self.received = b""
        self._reply, self._hang_up_at = reply, hang_up_at
        self._listener = create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.join(timeout=10)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection: socket
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(10)
            while b"\r\n0\r\n" not in self.received or not self.received.endswith(b"\r\n\r\n"):
                if self._hang_up_at is not None and self._hang_up_at in self.received:
                    return
                if not (data := connection.recv(65_536)):
                    return
                self.received += data
            connection.sendall(self._reply)


def _send(response: StreamedResponse, peer: Peer) -> None:
    send(response, peer.address, "/path", {"Content-Type": response.content_type})


def test_every_chunk_is_one_http_chunk() -> None:
    with Peer() as peer:
        _send(StreamedResponse([b"one", b"", b"three" * 4], "text/plain"), peer)

    head, _, body = peer.received.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /path HTTP/1.1",
        f"Host: {peer.address}".encode(),
        b"Content-Type: text/plain",
        b"Transfer-Encoding: chunked",
        b"Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
        b"Connection: close",
    ]
    assert body == b"3\r\none\r\n" + b"14\r\n" + b"three" * 4 + b"\r\n" + b"0\r\n\r\n"


def test_an_empty_stream_is_an_empty_body() -> None:
    with Peer() as peer:
        _send(StreamedResponse([]), peer)

    assert peer.received.endswith(b"\r\n\r\n0\r\n\r\n")


def test_an_http_answer_begins_with_its_prelude() -> None:
    response = StreamedResponse([b"body"], "text/plain", status=201, headers={"x-a": "b"}, cookies=["c=d"])
    with Peer() as peer:
        _send(response, peer)

    assert response.content_type == HTTP_INTEGRATION_TYPE
    body = peer.received.partition(b"\r\n\r\n")[2]
    prelude = json.loads(body.partition(b"\r\n")[2].partition(bytes(8))[0])
    assert prelude == {
        "statusCode": 201,
        "headers": {"content-type": "text/plain", "x-a": "b"},
        "cookies": ["c=d"],
    }
    assert body.endswith(bytes(8) + b"\r\n4\r\nbody\r\n0\r\n\r\n")


def test_priming_runs_the_handler_to_its_first_chunk_and_loses_nothing() -> None:
    asked = []

    def chunks() -> Iterator[bytes]:
        for index in range(3):
            asked.append(index)
            yield b"%d" % index

    response = StreamedResponse(chunks())
    response.prime()

    assert asked == [0]
    assert b"".join(response) == b"012"


def test_an_error_before_the_first_chunk_comes_from_priming() -> None:
    def chunks() -> Iterator[bytes]:
        raise ZeroDivisionError("at once")
        yield b""

    with pytest.raises(ZeroDivisionError, match="at once"):
        StreamedResponse(chunks()).prime()


def test_an_error_after_the_first_chunk_travels_in_the_trailers(caplog: pytest.LogCaptureFixture) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError("im Ärger")

    with Peer() as peer:
        _send(StreamedResponse(chunks()), peer)

    _, _, end = peer.received.partition(b"4\r\nhalf\r\n0\r\n")
    error_type, error_body = end.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert error_type == b"Lambda-Runtime-Function-Error-Type: ZeroDivisionError"
    name, _, value = error_body.partition(b": ")
    assert name == b"Lambda-Runtime-Function-Error-Body"
    document = json.loads(b64decode(value))
    assert (document["errorType"], document["errorMessage"]) == ("ZeroDivisionError", "im Ärger")
    assert "chunks" in document["stackTrace"][-1]
    assert "failed after its answer had begun" in caplog.text


def test_a_chunk_that_is_not_bytes_is_the_handlers_error(caplog: pytest.LogCaptureFixture) -> None:
    chunks: list[bytes] = [b"ok", "text"]  # type: ignore[list-item]
    with Peer() as peer:
        _send(StreamedResponse(chunks), peer)

    assert b"Lambda-Runtime-Function-Error-Type: StreamSetupError" in peer.received
    assert "a streamed chunk is str" in caplog.text


def test_when_the_caller_hangs_up_the_handlers_generator_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    is_closed = threading.Event()

    def chunks() -> Iterator[bytes]:
        try:
            yield b"first"
            while True:
                yield b"x" * 65_536
        finally:
            is_closed.set()

    with Peer(hang_up_at=b"first") as peer:
        _send(StreamedResponse(chunks()), peer)

    assert is_closed.is_set()
    assert "broke off" in caplog.text


def test_a_handler_that_fails_while_being_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def chunks() -> Iterator[bytes]:
        try:
            yield b"first"
            while True:
                yield b"x" * 65_536
        finally:
            raise KeyError("in finally")

    with Peer(hang_up_at=b"first") as peer:
        _send(StreamedResponse(chunks()), peer)

    assert "failed while its stream was being closed" in caplog.text


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    chunks = iter([b"never sent"])

    send(StreamedResponse(chunks), f"127.0.0.1:{port}", "/path", {})

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", "with 413, not 202"),
        (b"garbage\r\n\r\n", "no status line"),
        (b"", "no status line"),
    ],
)
def test_a_refused_stream_is_logged(reply: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with Peer(reply) as peer:
        _send(StreamedResponse([b"data"]), peer)

    assert said in caplog.text


@pytest.mark.parametrize("content_type", ["text/plain\r\nX-Evil: 1", "text/plän"])
def test_a_content_type_cannot_leave_its_header(content_type: str) -> None:
    with pytest.raises(StreamSetupError, match="content type"):
        StreamedResponse([], content_type)
