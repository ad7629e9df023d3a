# SPDX-License-Identifier: Apache-2.0
"""HTTP in, HTTP out: what a function is told of a request, and what a client gets of its answer."""

import json
import os
import signal
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.contract.fronts import Service, serving_source, wait_until

ECHO = "def handle(event, context):\n    return event\n"
ANSWER = "import json\ndef handle(event, context):\n    return json.loads(event['body'])\n"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving_source(tmp_path_factory.mktemp("echo"), ECHO) as service:
        yield service


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Answers with what it was sent."""
    with serving_source(tmp_path_factory.mktemp("answer"), ANSWER) as service:
        yield service


def _event(response: HTTPResponse) -> Any:
    with response:
        assert response.status == 200
        return json.loads(response.read())


def _answer(service: Service, document: object, method: str = "POST") -> HTTPResponse:
    body = json.dumps(document).encode()
    return service.open(method, "/", body, {"content-type": "application/json"})


# --- requests ---


def test_a_request_is_an_event(echo: Service) -> None:
    headers = {"Cookie": "a=1; b=2", "X-Amzn-Trace-Id": "Root=1-5-6", "User-Agent": "test/1"}
    event = _event(echo.open("PUT", "/v1/a%2Fb?x=1&y=&x=%C3%A9", b"", headers))

    assert (event["version"], event["rawPath"]) == ("2.0", "/v1/a%2Fb")
    assert event["rawQueryString"] == "x=1&y=&x=%C3%A9"
    assert event["queryStringParameters"] == {"x": "1,é", "y": ""}
    assert event["cookies"] == ["a=1", "b=2"]
    assert "cookie" not in event["headers"]
    assert event["headers"]["x-amzn-trace-id"] == "Root=1-5-6"
    http = event["requestContext"]["http"]
    assert (http["method"], http["protocol"], http["sourceIp"]) == ("PUT", "HTTP/1.1", "127.0.0.1")
    assert http["userAgent"] == "test/1"
    assert (event.get("body"), event["isBase64Encoded"]) == (None, False)


def test_the_trace_goes_on_in_the_function(tmp_path: Path) -> None:
    source = "import os\ndef handle(event, context):\n    return os.environ['_X_AMZN_TRACE_ID']\n"
    with serving_source(tmp_path, source) as service:
        with service.open("GET", "/", headers={"x-amzn-trace-id": "Root=1-5-6;Parent=7"}) as response:
            assert response.read() == b"Root=1-5-6;Parent=7"
        assert service.get("/")[1].startswith(b"Root=1-")


@pytest.mark.parametrize(
    ("content_type", "body", "is_base64"),
    [
        ("application/json; charset=utf-8", '{"é": 1}'.encode(), False),
        ("text/plain", b"text", False),
        ("application/problem+json", b"{}", False),
        ("text/plain", b"\xff not text", True),
        ("application/octet-stream", b"text", True),
        ("application/x-www-form-urlencoded", b"a=b", True),
        (None, b"text", True),
    ],
)
def test_what_is_not_text_travels_as_base64(
    echo: Service, content_type: str | None, body: bytes, is_base64: bool
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    event = _event(echo.open("POST", "/", body, headers))

    assert event["isBase64Encoded"] == is_base64
    assert (b64decode(event["body"]) if is_base64 else event["body"].encode()) == body


@pytest.mark.parametrize("size_bytes", [6 * MIB - 300, 7 * MIB])  # too large as an event; as a body alone
def test_a_request_over_lambdas_limit(echo: Service, size_bytes: int) -> None:
    with echo.open("POST", "/", b"x" * size_bytes, {"content-type": "text/plain"}) as response:
        assert response.status == 413
        assert json.loads(response.read())["error"]["type"] == "RequestTooLargeError"
    assert echo.get("/")[0] == 200


# --- answers ---


def test_status_headers_cookies_and_body_come_back(answer: Service) -> None:
    document = {
        "statusCode": 201,
        "headers": {"X-Number": 5, "Content-Type": "text/plain; charset=utf-8", "Content-Length": "999"},
        "cookies": ["a=1; Secure", "b=2"],
        "body": "é",
    }
    with _answer(answer, document) as response:
        assert (response.status, response.read()) == (201, "é".encode())
        assert response.headers["x-number"] == "5"
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.headers["content-length"] == "2"
        assert response.headers.get_all("set-cookie") == ["a=1; Secure", "b=2"]


def test_a_body_in_base64_arrives_as_bytes(answer: Service) -> None:
    with _answer(answer, {"statusCode": 200, "body": "AP8=", "isBase64Encoded": True}) as response:
        assert response.read() == b"\x00\xff"


@pytest.mark.parametrize(
    ("document", "body"),
    [({"a": "é"}, '{"a":"é"}'), ("text", "text"), (None, "null"), ([1], "[1]")],
)
def test_a_result_that_is_no_response_is_the_body(answer: Service, document: object, body: str) -> None:
    with _answer(answer, document) as response:
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        assert response.read().decode() == body


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body(answer: Service, status: int) -> None:
    with _answer(answer, {"statusCode": status, "body": "dropped"}) as response:
        assert (response.status, response.read()) == (status, b"")


def test_a_head_request_gets_no_body(answer: Service) -> None:
    with _answer(answer, {"statusCode": 200, "body": "dropped"}, method="HEAD") as response:
        assert (response.status, response.read()) == (200, b"")


@pytest.mark.parametrize(
    "document",
    [
        {"statusCode": 99},
        {"statusCode": 101},
        {"statusCode": "ok"},
        {"statusCode": 200, "body": {"a": 1}},
        {"statusCode": 200, "headers": ["a"]},
        {"statusCode": 200, "cookies": "a=1"},
        {"statusCode": 200, "headers": {"x": "a\r\ny: b"}},
        {"statusCode": 200, "headers": {"a b": "x"}},
        {"statusCode": 200, "headers": {"x": "\u20ac"}},
        {"statusCode": 200, "body": "%%", "isBase64Encoded": True},
    ],
)
def test_an_answer_that_is_no_response(answer: Service, document: object) -> None:
    with _answer(answer, document) as response:
        assert response.status == 502
        assert json.loads(response.read())["error"]["type"] == "Gateway.BadAnswer"


# --- failures ---


def test_a_functions_exception_is_502_and_stays_in_its_log(tmp_path: Path) -> None:
    source = "def handle(event, context):\n    raise KeyError('secret')\n"
    with serving_source(tmp_path, source) as service:
        status, body = service.get("/")

    error = json.loads(body)["error"]
    assert (status, error["type"]) == (502, "KeyError")
    assert b"secret" not in body
    assert any("secret" in line for line in service.output)


def test_a_function_that_does_not_start(tmp_path: Path) -> None:
    with serving_source(tmp_path, "import not_there\n") as service:
        for _ in range(2):
            status, body = service.get("/")
            assert (status, json.loads(body)["error"]["type"]) == (502, "Runtime.ImportModuleError")
        (tmp_path / "handler.py").write_text(ECHO)
        assert service.get("/")[0] == 200


def test_a_timeout_is_504_and_the_next_request_has_a_new_process(tmp_path: Path) -> None:
    source = """
import time
def handle(event, context):
    if event["rawPath"] == "/sleep":
        time.sleep(60)
"""
    with serving_source(tmp_path, source, timeout_s=1.0) as service, ThreadPoolExecutor() as threads:
        slow = threads.submit(service.get, "/sleep")
        wait_until(lambda: service.starts)
        assert service.get("/") == (200, b"null")  # it waited, and is none the worse for it
        status, body = slow.result()

    assert (status, json.loads(body)["error"]["type"]) == (504, "Sandbox.Timedout")
    assert len(service.starts) == 2


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    source = """
import os
def handle(event, context):
    return os.getpid() if event["rawPath"] == "/" else os._exit(3)
"""
    with serving_source(tmp_path, source) as service:
        first = service.get("/")
        status, body = service.get("/exit")
        second = service.get("/")
        os.kill(int(second[1]), signal.SIGKILL)
        wait_until(lambda: service.starts[1].state.value == "dead")
        third = service.get("/")

    assert (status, json.loads(body)["error"]["type"]) == (502, "Runtime.ExitError")
    assert [int(pid) for _, pid in (first, second, third)] == [each.pid for each in service.starts]


# --- turns ---

GATED = """
from pathlib import Path
import time
n = 0
def handle(event, context):
    global n
    n += 1
    Path(f"began-{n}").touch()
    while not Path("go").exists():
        time.sleep(0.001)
    return n
"""


def test_requests_take_turns_and_more_than_may_wait_are_refused(tmp_path: Path) -> None:
    with serving_source(tmp_path, GATED, max_waiting=2) as service, ThreadPoolExecutor() as threads:
        answers = [threads.submit(service.get, "/") for _ in range(3)]
        wait_until(lambda: service.pool.n_waiting == 2)
        with service.open("GET", "/") as refused:
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            assert json.loads(refused.read())["error"]["type"] == "TooManyRequestsError"
        (tmp_path / "go").touch()

        assert sorted(each.result() for each in answers) == [(200, b"1"), (200, b"2"), (200, b"3")]


def test_who_leaves_the_queue_is_not_answered(tmp_path: Path) -> None:
    with serving_source(tmp_path, GATED) as service, ThreadPoolExecutor() as threads:
        first = threads.submit(service.get, "/")
        wait_until((tmp_path / "began-1").exists)
        leaver = _hold(service)
        wait_until(lambda: service.pool.n_waiting == 1)
        leaver.close()
        wait_until(lambda: service.pool.n_waiting == 0)
        (tmp_path / "go").touch()

        assert first.result() == (200, b"1")
        assert service.get("/") == (200, b"2")


def test_who_leaves_before_a_whole_answer_lets_the_function_finish(tmp_path: Path) -> None:
    with serving_source(tmp_path, GATED) as service, ThreadPoolExecutor() as threads:
        leaver = _hold(service)
        wait_until((tmp_path / "began-1").exists)
        leaver.close()
        second = threads.submit(service.get, "/")
        wait_until(lambda: service.pool.n_waiting == 1)  # the function still works for who left
        (tmp_path / "go").touch()

        assert second.result() == (200, b"2")
    assert len(service.starts) == 1


def test_who_leaves_during_a_start_leaves_the_process_to_the_next(tmp_path: Path) -> None:
    source = """
from pathlib import Path
import time
Path("began").touch()
while not Path("go").exists():
    time.sleep(0.001)
def handle(event, context):
    return "fine"
"""
    with serving_source(tmp_path, source) as service, ThreadPoolExecutor() as threads:
        leaver = _hold(service)
        wait_until((tmp_path / "began").exists)
        leaver.close()
        wait_until(lambda: not service.pool.is_busy)
        second = threads.submit(service.get, "/")
        wait_until(lambda: service.pool.is_busy)
        (tmp_path / "go").touch()

        assert second.result() == (200, b"fine")
    assert len(service.starts) == 1


def test_the_end_of_the_host_ends_every_request(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        with serving_source(tmp_path, GATED) as service:
            answers = [threads.submit(service.get, "/") for _ in range(3)]
            wait_until(lambda: service.pool.n_waiting == 2 and (tmp_path / "began-1").exists())
        statuses = sorted(answer.result()[0] for answer in answers)

    assert statuses == [502, 503, 503]
    with pytest.raises(ProcessLookupError):
        os.kill(service.starts[0].pid, 0)


def _hold(service: Service) -> HTTPConnection:
    """A connection whose request is on its way."""
    connection = HTTPConnection(service.url.removeprefix("http://"))
    connection.request("GET", "/")
    return connection
