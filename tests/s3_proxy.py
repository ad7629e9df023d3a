# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and a real S3 server, counts what is asked, and gets in the way as it is told."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Exchange"], object]


class Proxy:
    """A running proxy. The next requests meet the `faults` put into it, in turn; then it only passes on."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.faults: deque[Fault] = deque()
        self.asked: Counter[tuple[str, str]] = (
            Counter()
        )  # path and range, with the answers that were no fault
        self.last_authorization = ""
        self.ended = threading.Event()


class Exchange(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy
    upstream_port: int

    def do_GET(self) -> None:
        """Pass it on, or let a fault have it."""
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.proxy.last_authorization = self.headers.get("authorization", "")
        try:
            fault = self.proxy.faults.popleft()
        except IndexError:
            self.proxy.asked[self.path, self.headers.get("range", "")] += self.command == "GET"
            fault = pass_on
        try:
            fault(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_DELETE = do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - so the library calls them

    @contextmanager
    def answer(self) -> Iterator[HTTPResponse]:
        """What the server says to this request."""
        connection = HTTPConnection("127.0.0.1", self.upstream_port)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":  # which was answered here
                    connection.putheader(name, value)
            connection.endheaders(self.body)
            yield connection.getresponse()
        finally:
            connection.close()

    def begin(self, answer: HTTPResponse, **changed: str) -> None:
        """Send the head of an answer."""
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, changed.get(name.lower().replace("-", "_"), value))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


def pass_on(exchange: Exchange) -> None:
    """No fault."""
    with exchange.answer() as answer:
        exchange.begin(answer)
        exchange.wfile.write(answer.read())


def refuse(status: int, code: str) -> Fault:
    """S3's document for an error."""

    def fault(exchange: Exchange) -> None:
        body = f"<Error><Code>{code}</Code><Message>AKIASECRET is told here</Message></Error>".encode()
        exchange.send_response(status)
        exchange.send_header("content-length", str(len(body)))
        exchange.end_headers()
        exchange.wfile.write(body)

    return fault


def half_a_body(exchange: Exchange) -> None:
    """The length of the whole, half of it but a byte at least, and the end of the connection."""
    with exchange.answer() as answer:
        exchange.begin(answer)
        body = answer.read()
        exchange.wfile.write(body[: -(-len(body) // 2)])
    exchange.close_connection = True


def reset(exchange: Exchange) -> None:
    """No answer at all."""
    exchange.close_connection = True


def wait_for_ever(exchange: Exchange) -> None:
    """No answer, and no end either."""
    exchange.proxy.ended.wait()
    exchange.close_connection = True


def one_byte_after_the_other(exchange: Exchange) -> None:
    """An answer that never stops to come."""
    with exchange.answer() as answer:
        exchange.begin(answer)
        for byte in answer.read():
            if exchange.proxy.ended.wait(0.01):
                break
            exchange.wfile.write(bytes((byte,)))
    exchange.close_connection = True


def with_another(**headers: str) -> Fault:
    """The server's answer, but for some headers of it."""

    def fault(exchange: Exchange) -> None:
        with exchange.answer() as answer:
            exchange.begin(answer, **headers)
            exchange.wfile.write(answer.read())

    return fault


def damaged(exchange: Exchange) -> None:
    """A bit of the body is wrong."""
    with exchange.answer() as answer:
        exchange.begin(answer)
        body = answer.read()
        exchange.wfile.write(body[:-1] + bytes((body[-1] ^ 1,)))


def not_http(exchange: Exchange) -> None:
    """Something else listens there."""
    exchange.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    exchange.close_connection = True


@contextmanager
def between(upstream_port: int) -> Iterator[Proxy]:
    """Run a proxy until the end of the block."""
    exchange = type("BoundExchange", (Exchange,), {"upstream_port": upstream_port})
    with ThreadingHTTPServer(("127.0.0.1", 0), exchange) as server:
        server.daemon_threads = True
        proxy = exchange.proxy = Proxy(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            server.shutdown()
            thread.join()
