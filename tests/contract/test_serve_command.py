# SPDX-License-Identifier: Apache-2.0
"""`quickthaw serve`, as its clients see it: many at once, each with its own answer, until it ends."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import shards
from tests.contract.fronts import TIMEOUT_S, wait_until

_COMMAND = [
    sys.executable,
    "-c",
    "import sys; from quickthaw.handler.cli import main; sys.exit(main())",
    "serve",
]


class Server:
    """A running command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        found = re.fullmatch(r"(\S+) on http://(127\.0\.0\.1:\d+)\n", process.stdout.readline())
        assert found is not None
        self.model, self.address = found.groups()

    def open(self, method: str, path: str, document: object = None, **headers: str) -> HTTPResponse:
        """Closing the response closes the connection."""
        connection = HTTPConnection(self.address, timeout=TIMEOUT_S)
        body = None if document is None else json.dumps(document).encode()
        connection.request(method, path, body, {"connection": "close", **headers})
        return connection.getresponse()

    def complete(self, **fields: Any) -> tuple[int, Any]:
        with self.open("POST", "/v1/completions", {"temperature": 0, **fields}) as response:
            return response.status, json.loads(response.read())

    def metric(self, name: str) -> float:
        with self.open("GET", "/metrics") as response:
            families = text_string_to_metric_families(response.read().decode())
        return sum(each.value for family in families for each in family.samples if each.name == name)


@contextmanager
def serving(shard_set: Path, *arguments: str, **environ: str) -> Iterator[Server]:
    command = [*_COMMAND, "--shards", str(shard_set), "--port", "0", *arguments]
    cache = {"QUICKTHAW_CACHE": str(shard_set.parent / "cache"), "QUICKTHAW_LOG": "off"}
    with subprocess.Popen(
        command, env={**os.environ, **cache, **environ}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shard_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make_chat(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(shard_set: Path) -> Iterator[Server]:
    with serving(shard_set, "--max-batch", "4") as running:
        yield running


def test_what_many_ask_at_once_is_what_each_would_be_told_alone(server: Server) -> None:
    draw = random.Random(0)
    asked = [
        {
            "prompt": [draw.randrange(3, 200) for _ in range(draw.choice((1, 3, 30, 150)))],
            "max_tokens": draw.randrange(1, 12),
            "temperature": 1,
            "seed": number,
            "priority": draw.randrange(3),
        }
        for number in range(24)
    ]
    alone = [server.complete(**each)[1]["choices"] for each in asked]
    with ThreadPoolExecutor(12) as clients:
        together = list(clients.map(lambda each: server.complete(**each), asked))
    assert [status for status, _ in together] == [200] * len(asked)
    assert [answer["choices"] for _, answer in together] == alone


def test_it_has_the_functions_routes_and_errors(server: Server) -> None:
    with server.open("GET", "/v1/models") as response:
        assert json.loads(response.read())["data"][0]["id"] == server.model == "tiny"
    with server.open("GET", "/nowhere") as response:
        assert response.status == 404
    status, answer = server.complete(prompt=[10**9])
    assert (status, answer["error"]["code"]) == (400, "invalid_value")
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "n": 2}
    with server.open("POST", "/v1/chat/completions", chat) as response:
        assert len(json.loads(response.read())["choices"]) == 2


def test_a_stream_says_what_the_whole_answer_says(server: Server) -> None:
    asked = {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0}
    with server.open("POST", "/v1/completions", {**asked, "stream": True}) as response:
        events = response.read().decode().split("\n\n")
        assert response.getheader("content-type") == "text/event-stream"
    assert events[-2:] == ["data: [DONE]", ""]
    texts = [json.loads(event[6:])["choices"][0]["text"] for event in events[:-2]]
    assert "".join(texts) == server.complete(**asked)[1]["choices"][0]["text"]


def test_a_client_that_leaves_gives_its_place_away(shard_set: Path) -> None:
    long = {"prompt": [1], "max_tokens": 250, "logit_bias": {"2": -100}, "stream": True}
    with serving(shard_set, "--max-batch", "1") as server:
        for _ in range(3):
            leaving = server.open("POST", "/v1/completions", long)
            assert leaving.readline().startswith(b"data: ")
            leaving.close()
        assert server.complete(prompt=[1], max_tokens=2)[0] == 200
        wait_until(lambda: server.metric("quickthaw_batch_requests") == 0)


def test_too_many_are_refused_and_those_before_answered(shard_set: Path) -> None:
    with (
        serving(shard_set, "--max-batch", "1", "--max-waiting", "1") as server,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = {"prompt": [1], "max_tokens": 200, "logit_bias": {"2": -100}}
        statuses = [status for status, _ in pool.map(lambda _: server.complete(**asked), range(8))]
        assert set(statuses) == {200, 429}
        assert server.metric("quickthaw_refused_requests_total") == statuses.count(429)
        assert server.complete(prompt=[1], max_tokens=1)[0] == 200


def test_it_ends_when_those_who_asked_were_answered(shard_set: Path) -> None:
    with serving(shard_set) as server:
        asked = {"prompt": [1], "max_tokens": 200, "logit_bias": {"2": -100}, "stream": True}
        response = server.open("POST", "/v1/completions", asked)
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert server.process.wait(TIMEOUT_S) == 143
        with pytest.raises(ConnectionRefusedError):
            server.open("GET", "/healthz")


def test_a_device_that_is_not_there_is_refused_by_name(shard_set: Path) -> None:
    command = [*_COMMAND, "--shards", str(shard_set), "--device", "cuda"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr.startswith("quickthaw: no device cuda")
