# SPDX-License-Identifier: Apache-2.0
"""A streamed answer as an HTTP client sees it: when each piece comes, how it ends, what it costs to leave."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from tests import shards
from tests.contract.fronts import Service, serving_source, wait_until

# Each chunk, and each token, is computed when the test has made room for it: a file `go-N`, or `go` for all.
GATES = """
from pathlib import Path
import time
class Gate:
    n = 0
    def wait(self):
        while not (Path(f"go-{self.n}").exists() or Path("go").exists()):
            time.sleep(0.001)
        self.n += 1
        Path("computed").write_text(f"{self.n}.")
"""
CHUNKS = (
    GATES
    + """
from quickthaw.snapshot.streaming import StreamedResponse
def handle(event, context):
    def chunks():
        gate = Gate()
        try:
            for n in range(100):
                gate.wait()
                if event.get("rawQueryString") == f"fail={n}":
                    raise ValueError("secret")
                yield b"data: %d\\n\\n" % n
        finally:
            Path("closed").touch()
    content_type = event["headers"].get("accept", "text/event-stream")
    return StreamedResponse(chunks(), content_type, status=200, headers={"x-a": "b"}, cookies=["c=d"])
"""
)
# The real function, whose engine waits at the gate, and fails when it is told to.
TOKENS = (
    GATES
    + """
from quickthaw.layers.interpreter import Interpreter
gate, forward = Gate(), Interpreter.forward
def gated(self, token_ids, cache):
    gate.wait()
    if Path(f"fail-{gate.n}").exists():
        raise RuntimeError("secret")
    return forward(self, token_ids, cache)
Interpreter.forward = gated
from quickthaw.handler.app import lambda_handler as handle
"""
)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Service]:
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make(tmp_path)),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    with serving_source(tmp_path, TOKENS, environ=environ) as service:
        yield service


def _ask(service: Service, n_tokens: int = 50) -> HTTPResponse:
    body = {
        "prompt": [1, 2, 3],
        "max_tokens": n_tokens,
        "stream": True,
        "temperature": 0,
        "logit_bias": {2: -100},
    }
    headers = {"content-type": "application/json"}
    return service.open("POST", "/v1/completions", json.dumps(body).encode(), headers)


def _read_event(response: HTTPResponse) -> Any:
    """The next event, up to its empty line."""
    line = response.readline()
    assert line.startswith(b"data: "), line
    assert response.readline() == b"\n"
    return json.loads(line[6:]) if line != b"data: [DONE]\n" else None


def _n_computed(directory: Path) -> int:
    path = directory / "computed"
    return int(path.read_text().rstrip(".") or 0) if path.exists() else 0


def test_each_token_arrives_before_the_next_is_computed(tmp_path: Path, tokens: Service) -> None:
    (tmp_path / "go-0").touch()
    with _ask(tokens, n_tokens=5) as response:
        assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
        for n in range(5):
            assert len(_read_event(response)["choices"]) == 1
            assert _n_computed(tmp_path) == n + 1
            (tmp_path / f"go-{n + 1}").touch()
        assert _read_event(response)["choices"][0]["finish_reason"] == "length"
        assert _read_event(response) is None
        assert response.read() == b""


def test_who_leaves_stops_the_generation_within_a_token(tmp_path: Path, tokens: Service) -> None:
    for n in range(2):
        (tmp_path / f"go-{n}").touch()
    with _ask(tokens) as response:
        _read_event(response)
        _read_event(response)
    wait_until(lambda: not tokens.pool.is_busy)  # the function has been hung up on
    (tmp_path / "go-2").touch()  # the token that was being computed is finished
    (tmp_path / "go-3").touch()
    with _ask(tokens, n_tokens=1) as response:  # and this is the one after it
        assert response.status == 200
        response.read()

    assert _n_computed(tmp_path) == 4
    wait_until(lambda: len(tokens.request_lines()) == 2)
    assert tokens.request_lines()[0]["completion_tokens"] == 3


def test_who_leaves_before_the_first_token_stops_it_within_two(tmp_path: Path, tokens: Service) -> None:
    """It is not known before its first chunk that an answer is streamed."""
    connection = HTTPConnection(tokens.url.removeprefix("http://"))
    body = {"prompt": [1, 2, 3], "max_tokens": 50, "stream": True, "logit_bias": {2: -100}}
    connection.request("POST", "/v1/completions", json.dumps(body).encode())
    wait_until(lambda: tokens.starts and tokens.pool.is_busy)
    connection.close()
    (tmp_path / "go-0").touch()
    wait_until(lambda: not tokens.pool.is_busy)  # the first chunk was answered with a hang-up
    (tmp_path / "go").touch()
    wait_until(tokens.request_lines)

    assert tokens.request_lines()[0]["completion_tokens"] <= 2


def test_an_engine_that_fails_after_the_first_token(tmp_path: Path, tokens: Service) -> None:
    (tmp_path / "fail-3").touch()
    (tmp_path / "go").touch()
    with _ask(tokens) as response:
        assert "choices" in _read_event(response)
        assert "choices" in _read_event(response)
        assert _read_event(response)["error"]["type"] == "server_error"
        with pytest.raises(IncompleteRead) as rest:
            response.read()
    (tmp_path / "fail-3").unlink()
    with _ask(tokens, n_tokens=1) as response:
        whole = response.read()

    assert rest.value.partial == b""  # the function has said it: nobody repeats it
    assert whole.endswith(b"data: [DONE]\n\n")
    assert len(tokens.starts) == 1


def test_an_error_behind_the_first_chunk_becomes_an_event(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with serving_source(tmp_path, CHUNKS) as service:
        with service.open("GET", "/?fail=2") as response:
            assert (response.headers["x-a"], response.headers["set-cookie"]) == ("b", "c=d")
            assert [_read_event(response), _read_event(response)] == [0, 1]
            assert _read_event(response)["error"]["type"] == "ValueError"
            with pytest.raises(IncompleteRead) as rest:
                response.read()
        with service.open("GET", "/?fail=0") as response:  # before it, there is still a status to be had
            assert response.status == 502

    assert rest.value.partial == b""
    assert any("secret" in line for line in service.output)


def test_other_bodies_just_break_off(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with (
        serving_source(tmp_path, CHUNKS) as service,
        service.open("GET", "/?fail=2", headers={"accept": "text/plain"}) as response,
        pytest.raises(IncompleteRead) as whole,
    ):
        response.read()

    assert whole.value.partial == b"data: 0\n\ndata: 1\n\n"


def test_a_process_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "go-0").touch()
    with serving_source(tmp_path, CHUNKS) as service:
        with service.open("GET", "/") as response:
            assert _read_event(response) == 0
            os.kill(service.starts[0].pid, signal.SIGKILL)
            assert _read_event(response)["error"]["message"].endswith("signal: killed")
            with pytest.raises(IncompleteRead):
                response.read()
        (tmp_path / "go").touch()
        with service.open("GET", "/") as response:
            assert len(response.read().split(b"\n\n")) == 101

    assert len(service.starts) == 2


def test_a_deadline_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "go-0").touch()
    with (
        serving_source(tmp_path, CHUNKS, timeout_s=1.0) as service,
        service.open("GET", "/") as response,
    ):
        assert _read_event(response) == 0
        assert _read_event(response)["error"]["type"] == "Sandbox.Timedout"
        with pytest.raises(IncompleteRead):
            response.read()


def test_who_leaves_closes_any_handlers_generator(tmp_path: Path) -> None:
    (tmp_path / "go-0").touch()
    with serving_source(tmp_path, CHUNKS) as service:
        with service.open("GET", "/") as response:
            assert _read_event(response) == 0
        wait_until(lambda: not service.pool.is_busy)
        (tmp_path / "go").touch()
        wait_until((tmp_path / "closed").exists)

    assert _n_computed(tmp_path) == 2


def test_a_client_that_does_not_read_slows_the_function_down(tmp_path: Path) -> None:
    source = """
from pathlib import Path
from quickthaw.snapshot.streaming import StreamedResponse
def handle(event, context):
    def chunks():
        for n in range(1000):
            Path("computed").write_text(f"{n}.")
            yield b"x" * 100_000
    return StreamedResponse(chunks(), status=200)
"""
    with serving_source(tmp_path, source) as service, service.open("GET", "/") as response:
        n_ahead = _settled(lambda: _n_computed(tmp_path))
        assert len(response.read()) == 100_000_000

    assert n_ahead < 500


def _settled(count: Callable[[], int], settle_s: float = 0.25) -> int:
    """What a count comes to, when it has not changed for a while."""
    seen, changed_s = count(), time.monotonic()
    while time.monotonic() < changed_s + settle_s:
        if seen != (seen := count()):
            changed_s = time.monotonic()
        time.sleep(0.01)
    return seen
