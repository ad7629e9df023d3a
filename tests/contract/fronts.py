# SPDX-License-Identifier: Apache-2.0
"""Serves a function over HTTP for a test, and asks it."""

import json
import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from quickthaw.snapshot.engines.cold import BOOTSTRAP, ColdEngine
from quickthaw.snapshot.errors import SnapshotError
from quickthaw.snapshot.host.front import Front
from quickthaw.snapshot.host.host_application import HostApplication
from quickthaw.snapshot.host.hosted_function import HostedFunction
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.pool import Pool, PoolLimits
from quickthaw.snapshot.host.worker import OnOutput, Worker

TIMEOUT_S = 30.0
OURS = "quickthaw.handler.app.lambda_handler"


class Service:
    """A function behind an address: what it printed, and the processes that it ran in."""

    def __init__(self, url: str, pool: Pool, output: list[str], starts: list[Instance]) -> None:
        self.url = url
        self.pool = pool
        self.output = output
        self.starts = starts

    def open(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        """Send a request; return the response once its head is there. Closing it closes the connection."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=TIMEOUT_S)
        connection.request(method, path, body, {"connection": "close", **(headers or {})})
        return connection.getresponse()

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        with self.open("GET", path) as response:
            return response.status, response.read()

    def post(self, path: str, document: object) -> tuple[int, Any]:
        """Status, and the JSON that came back for a JSON document."""
        body, headers = json.dumps(document).encode(), {"content-type": "application/json"}
        with self.open("POST", path, body, headers) as response:
            return response.status, json.loads(response.read())

    def request_lines(self) -> list[dict[str, Any]]:
        """What our own function has written about its requests so far."""
        return [json.loads(line) for line in self.output if line.startswith('{"quickthaw":"request"')]


@contextmanager
def serving(
    handler: str, task_root: Path, environ: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Service]:
    """Serve `handler`. `options` are PoolLimits', and `bootstrap`."""
    output: list[str] = []
    starts: list[Instance] = []
    engine = ColdEngine(handler, str(task_root), options.pop("bootstrap", BOOTSTRAP))
    function = HostedFunction(handler, task_root=str(task_root))
    inherited = {**os.environ, **(environ or {})}

    def spawn(on_output: OnOutput, loop: AbstractEventLoop) -> Instance:
        def take(line: str) -> None:
            output.append(line)
            on_output(line)

        return Instance(engine, function.environment(inherited, engine.name), take, function.arn, loop)

    def note(worker: Worker, error: SnapshotError | None) -> None:
        if error is None and worker.instance is not None:
            starts.append(worker.instance)

    pool = Pool(spawn, PoolLimits(**{"timeout_s": TIMEOUT_S, **options}), note)
    with Front(HostApplication(pool, function)) as front:
        yield Service(front.url, pool, output, starts)


@contextmanager
def serving_source(task_root: Path, source: str, **options: Any) -> Iterator[Service]:
    """Serve the function `handle` of `source`, written to handler.py."""
    (task_root / "handler.py").write_text(source)
    with serving("handler.handle", task_root, **options) as service:
        yield service


def wait_until(is_so: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Poll. Raises: TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(is_so)
        time.sleep(0.002)
