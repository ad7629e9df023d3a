# SPDX-License-Identifier: Apache-2.0
"""The Invoke API as AWS's own SDK for Python calls it."""

import base64
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.contract.fronts import TIMEOUT_S, Service, serving_source, wait_until

MIB = 1024 * 1024
FUNCTION = """
import os, time
from pathlib import Path
from quickthaw.snapshot.streaming import StreamedResponse

print("during init")

class TeapotError(Exception):
    pass

def pieces(event):
    for n in range(event["stream"]):
        print("piece", n)
        yield b"%d " % n
        Path(f"sent-{n}").touch()
        while event.get("gated") and not Path(f"go-{n}").exists():
            time.sleep(0.001)
    if event.get("fail"):
        raise TeapotError("short and stout")

def handle(event, context):
    if "print" in event:
        print(event["print"])
    if "stream" in event:
        return StreamedResponse(pieces(event))
    if "raise" in event:
        raise TeapotError(event["raise"])
    if "exit" in event:
        os._exit(event["exit"])
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "size" in event:
        return "x" * event["size"]
    if "context" in event:
        return {
            "arn": context.invoked_function_arn, "name": context.function_name,
            "memory": context.memory_limit_in_mb, "stream": context.log_stream_name,
            "client": context.client_context and context.client_context.custom,
            "environ": dict(os.environ),
        }
    return event
"""


_clients: list[Any] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    """Their connections are otherwise left to the garbage collector, which warns."""
    yield
    while _clients:
        _clients.pop().close()


def _client(service: Service) -> Any:
    client = boto3.client(
        "lambda",
        endpoint_url=service.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=TIMEOUT_S,
            max_pool_connections=200,
            parameter_validation=False,
        ),
    )
    _clients.append(client)
    return client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_source(tmp_path_factory.mktemp("invoke"), FUNCTION, max_instances=2) as service:
        yield service


def _invoke(service: Service, event: object, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The payload's JSON, and all of the response."""
    response = _client(service).invoke(FunctionName="function", Payload=json.dumps(event), **options)
    return json.loads(response["Payload"].read()), response


def _stream(service: Service, event: object, **options: Any) -> tuple[bytes, dict[str, str]]:
    """The payload, and how it ended."""
    response = _client(service).invoke_with_response_stream(
        FunctionName="function", Payload=json.dumps(event), **options
    )
    messages = list(response["EventStream"])
    assert all(list(message) == ["PayloadChunk"] for message in messages[:-1])
    return b"".join(each["PayloadChunk"]["Payload"] for each in messages[:-1]), messages[-1]["InvokeComplete"]


def _refusal(service: Service, **arguments: Any) -> dict[str, Any]:
    """What the SDK raises."""
    with pytest.raises(ClientError) as raised:
        _client(service).invoke(**{"FunctionName": "function", **arguments})
    response: dict[str, Any] = raised.value.response
    return response


# --- answers ---


@pytest.mark.parametrize("event", [{"a": "é"}, [1], "text", None, 0.5, {"deep": [[[["x" * 100_000]]]]}])
def test_an_answer(service: Service, event: Any) -> None:
    if not isinstance(event, dict):
        event = {"event": event}
    answer, response = _invoke(service, event)

    assert answer == event
    assert (response["StatusCode"], response["ExecutedVersion"]) == (200, "$LATEST")
    assert "FunctionError" not in response
    assert "LogResult" not in response
    assert re.fullmatch(r"[0-9a-f-]{36}", response["ResponseMetadata"]["RequestId"])


def test_no_payload_is_an_empty_event(service: Service) -> None:
    response = _client(service).invoke(FunctionName="function")
    assert json.loads(response["Payload"].read()) == {}


def test_a_streamed_answer_asked_for_whole(service: Service) -> None:
    response = _client(service).invoke(FunctionName="function", Payload=b'{"stream": 3}')
    assert response["Payload"].read() == b"0 1 2 "


def test_what_the_function_is_told(service: Service) -> None:
    context = base64.b64encode(json.dumps({"custom": {"a": "é"}}).encode()).decode()
    answer, _ = _invoke(service, {"context": 1}, ClientContext=context)

    assert answer["arn"] == "arn:aws:lambda:us-east-1:000000000000:function:function"
    assert (answer["name"], answer["client"]) == ("function", {"a": "é"})
    environ = answer["environ"]
    assert environ["AWS_LAMBDA_LOG_STREAM_NAME"] == answer["stream"]
    assert re.fullmatch(r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}", answer["stream"])
    assert environ["AWS_LAMBDA_LOG_GROUP_NAME"] == "/aws/lambda/function"
    assert environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == str(answer["memory"])
    assert environ["AWS_LAMBDA_INITIALIZATION_TYPE"] == "on-demand"
    assert environ["_HANDLER"] == "handler.handle"
    assert os.path.isfile(os.path.join(environ["LAMBDA_TASK_ROOT"], "handler.py"))


@pytest.mark.parametrize(
    "name",
    [
        "function",
        "function:$LATEST",
        "000000000000:function:function",
        "arn:aws:lambda:us-east-1:000000000000:function:function",
        "arn:aws:lambda:us-east-1:000000000000:function:function:$LATEST",
    ],
)
def test_names_of_the_function(service: Service, name: str) -> None:
    assert _client(service).invoke(FunctionName=name)["StatusCode"] == 200


def test_a_dry_run_asks_nobody(service: Service) -> None:
    before = service.pool.metrics.n_requests.total()
    response = _client(service).invoke(
        FunctionName="function", InvocationType="DryRun", Payload=b'{"exit": 1}'
    )
    assert response["StatusCode"] == 204
    assert service.pool.metrics.n_requests.total() == before


# --- functions that fail ---


def test_an_exception(service: Service) -> None:
    answer, response = _invoke(service, {"raise": "short and stout"})

    assert (response["StatusCode"], response["FunctionError"]) == (200, "Unhandled")
    assert (answer["errorType"], answer["errorMessage"]) == ("TeapotError", "short and stout")
    assert "raise TeapotError" in answer["stackTrace"][-1]
    assert answer["requestId"] == response["ResponseMetadata"]["RequestId"]


def test_an_exit(service: Service) -> None:
    answer, response = _invoke(service, {"exit": 3})

    request_id = response["ResponseMetadata"]["RequestId"]
    assert response["FunctionError"] == "Unhandled"
    assert answer == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {request_id} Error: Runtime exited with error: exit status 3",
    }
    assert _invoke(service, {"a": 1})[0] == {"a": 1}


def test_a_timeout(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION, timeout_s=1.0) as service:
        answer, response = _invoke(service, {"sleep": 60, "print": "before"}, LogType="Tail")
        request_id = response["ResponseMetadata"]["RequestId"]
        assert response["FunctionError"] == "Unhandled"
        assert answer == {
            "errorType": "Sandbox.Timedout",
            "errorMessage": f"RequestId: {request_id} Error: Task timed out after 1.00 seconds",
        }
        assert b"before\n" in base64.b64decode(response["LogResult"])
        assert _invoke(service, {"a": 1})[0] == {"a": 1}


def test_a_function_that_does_not_start(tmp_path: Path) -> None:
    with serving_source(tmp_path, "import not_there\n") as service:
        answer, response = _invoke(service, {})
        payload, complete = _stream(service, {})

    assert response["FunctionError"] == "Unhandled"
    assert answer["errorType"] == "Runtime.ImportModuleError"
    assert (payload, complete["ErrorCode"]) == (b"", "Runtime.ImportModuleError")


@pytest.mark.parametrize("size", [6 * MIB - 2, 6 * MIB + 99])
def test_the_limit_of_an_answer(service: Service, size: int) -> None:
    answer, response = _invoke(service, {"size": size})
    if size < 6 * MIB:
        assert answer == "x" * size
    else:
        assert response["FunctionError"] == "Unhandled"
        assert answer["errorType"] == "Function.ResponseSizeTooLarge"


# --- calls that never get to the function ---


def test_another_function(service: Service) -> None:
    refusal = _refusal(service, FunctionName="other")
    assert refusal["Error"]["Code"] == "ResourceNotFoundException"
    assert "function:function" in refusal["Error"]["Message"]
    assert _refusal(service, Qualifier="7")["ResponseMetadata"]["HTTPStatusCode"] == 404


@pytest.mark.parametrize(("kind", "limit"), [("RequestResponse", 6 * MIB), ("Event", MIB)])
def test_an_event_that_is_too_large(service: Service, kind: str, limit: int) -> None:
    payload = b'"' + b"x" * (limit - 1) + b'"'
    refusal = _refusal(service, Payload=payload, InvocationType=kind)
    assert refusal["Error"]["Code"] == "RequestTooLargeException"
    assert refusal["ResponseMetadata"]["HTTPStatusCode"] == 413


@pytest.mark.parametrize("payload", [b"{", b"NaN", b'"\xff"', b"{} {}"])
def test_an_event_that_is_not_json(service: Service, payload: bytes) -> None:
    assert _refusal(service, Payload=payload)["Error"]["Code"] == "InvalidRequestContentException"


@pytest.mark.parametrize(
    "context", ["%%", base64.b64encode(b"{").decode(), base64.b64encode(b" " * 3000).decode()]
)
def test_a_client_context_that_is_none(service: Service, context: str) -> None:
    assert _refusal(service, ClientContext=context)["Error"]["Code"] == "InvalidRequestContentException"


def test_a_type_of_invocation_that_does_not_exist(service: Service) -> None:
    assert _refusal(service, InvocationType="Later")["Error"]["Code"] == "InvalidParameterValueException"


def test_a_lone_surrogate_is_json(service: Service) -> None:
    response = _client(service).invoke(FunctionName="function", Payload=b'{"a": "\\ud800"}')
    assert json.loads(response["Payload"].read()) == {"a": "\ud800"}


def test_a_queue_that_is_full(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION, max_waiting=1) as service, ThreadPoolExecutor() as threads:
        first = threads.submit(_stream, service, {"stream": 1, "gated": True})
        wait_until((tmp_path / "sent-0").exists)
        second = threads.submit(_invoke, service, {"a": 2})
        wait_until(lambda: service.pool.n_waiting == 1)
        refusal = _refusal(service)
        asynchronous = _refusal(service, InvocationType="Event")
        (tmp_path / "go-0").touch()

        assert first.result()[0] == b"0 "
        assert second.result()[0] == {"a": 2}
    for each in (refusal, asynchronous):
        assert each["Error"]["Code"] == "TooManyRequestsException"
        assert each["ResponseMetadata"]["HTTPStatusCode"] == 429


# --- the log ---


def test_the_log_of_this_invocation_alone(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION) as service:
        logs = []
        for n in range(3):
            _, response = _invoke(service, {"print": f"number {n}"}, LogType="Tail")
            logs.append(base64.b64decode(response["LogResult"]).decode())

    report = (
        r"REPORT RequestId: {0}\tDuration: \d+\.\d\d ms\tBilled Duration: \d+ ms\tMemory Size: \d+ MB"
        r"\tMax Memory Used: \d+ MB(\tInit Duration: \d+\.\d\d ms)?\t\n"
    )
    for n, log in enumerate(logs):
        request_id = log.split()[2]
        expected = (
            f"START RequestId: {request_id} Version: \\$LATEST\nnumber {n}\nEND RequestId: {request_id}\n"
        )
        found = re.fullmatch(expected + report.format(request_id), log)
        assert found is not None, log
        assert (found[1] is not None) == (n == 0)


def test_the_end_of_a_long_log(service: Service) -> None:
    _, response = _invoke(service, {"print": "x" * 9000 + "é last words"}, LogType="Tail")
    log = base64.b64decode(response["LogResult"])
    assert len(log) == 4096
    assert "é last words\nEND RequestId".encode() in log


def test_the_log_of_a_stream(service: Service) -> None:
    payload, complete = _stream(service, {"stream": 2}, LogType="Tail")
    assert payload == b"0 1 "
    assert b"\npiece 0\npiece 1\nEND RequestId" in base64.b64decode(complete["LogResult"])


# --- streams ---


def test_a_stream_comes_piece_by_piece(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION) as service:
        response = _client(service).invoke_with_response_stream(
            FunctionName="function", Payload=json.dumps({"stream": 3, "gated": True})
        )
        messages = iter(response["EventStream"])
        for n in range(3):
            assert next(messages) == {"PayloadChunk": {"Payload": b"%d " % n}}
            (tmp_path / f"go-{n}").touch()  # without which it would not go on
        assert next(messages) == {"InvokeComplete": {}}
        assert next(messages, None) is None


def test_a_stream_of_a_function_that_does_not_stream(service: Service) -> None:
    payload, complete = _stream(service, {"a": 1})
    assert (json.loads(payload), complete) == ({"a": 1}, {})


@pytest.mark.parametrize("n_pieces", [0, 2])
def test_a_stream_that_fails(service: Service, n_pieces: int) -> None:
    payload, complete = _stream(service, {"stream": n_pieces, "fail": True})

    assert payload == b"".join(b"%d " % n for n in range(n_pieces))
    assert complete["ErrorCode"] == "TeapotError"
    details = json.loads(complete["ErrorDetails"])
    assert (details["errorType"], details["errorMessage"]) == ("TeapotError", "short and stout")


def test_a_process_that_is_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION) as service:
        response = _client(service).invoke_with_response_stream(
            FunctionName="function", Payload=json.dumps({"stream": 2, "gated": True})
        )
        messages = iter(response["EventStream"])
        assert next(messages) == {"PayloadChunk": {"Payload": b"0 "}}
        os.kill(service.starts[0].pid, signal.SIGKILL)
        (message,) = messages
        complete = message["InvokeComplete"]

        assert complete["ErrorCode"] == "Runtime.ExitError"
        assert "signal: " in complete["ErrorDetails"]
        assert _invoke(service, {"a": 1})[0] == {"a": 1}


def test_who_hangs_up_ends_the_stream(tmp_path: Path) -> None:
    path = "/2021-11-15/functions/function/response-streaming-invocations"
    with serving_source(tmp_path, FUNCTION) as service:
        with service.open("POST", path, json.dumps({"stream": 100, "gated": True}).encode()) as response:
            assert response.read(1) == b"\0"  # of the first message's length
        (tmp_path / "go-0").touch()
        (tmp_path / "go-1").touch()  # by now a write finds nobody, unless the host has not noticed yet
        wait_until(lambda: not service.pool.is_busy or _let_go_on(tmp_path))
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(_invoke, service, {"a": 1})
            # It may still wait behind a write that came just before it was hung up on: the next one ends it.
            wait_until(lambda: answer.done() or _let_go_on(tmp_path))
        assert answer.result()[0] == {"a": 1}
        assert not (tmp_path / "sent-99").exists()
    assert len(service.starts) == 1


def _let_go_on(folder: Path) -> bool:
    n_sent = len(list(folder.glob("sent-*")))
    (folder / f"go-{n_sent - 1}").touch()
    return False


# --- events that nobody waits for ---


def test_an_event_in_the_background(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION) as service:
        response = _client(service).invoke(
            FunctionName="function", InvocationType="Event", Payload=b'{"print": "in the background"}'
        )
        assert (response["StatusCode"], response["Payload"].read()) == (202, b"")
        wait_until(lambda: "in the background\n" in service.output)


# --- many ---


def test_many_requests_over_few_processes_each_its_own_answer(tmp_path: Path) -> None:
    with serving_source(tmp_path, FUNCTION, max_instances=3) as service, ThreadPoolExecutor(200) as threads:
        client = _client(service)

        def ask(n: int) -> Any:
            if n % 8:
                payload = client.invoke(FunctionName="function", Payload=json.dumps({"n": n}))[
                    "Payload"
                ].read()
                return json.loads(payload)["n"]
            stream = client.invoke_with_response_stream(
                FunctionName="function", Payload=json.dumps({"stream": n % 64})
            )["EventStream"]
            return b"".join(each.get("PayloadChunk", {}).get("Payload", b"") for each in stream)

        answers = list(threads.map(ask, range(200)))

    assert answers == [n if n % 8 else b"".join(b"%d " % k for k in range(n % 64)) for n in range(200)]
    assert len(service.starts) <= 3


def test_eight_at_once_run_at_once(tmp_path: Path) -> None:
    """None of them ends before all of them have begun."""
    source = """
from pathlib import Path
import time
def handle(event, context):
    Path(f"began-{event}").touch()
    while len(list(Path(".").glob("began-*"))) < 8:
        time.sleep(0.002)
    return event
"""
    with serving_source(tmp_path, source, max_instances=8) as service, ThreadPoolExecutor(8) as threads:
        client = _client(service)
        answers = threads.map(
            lambda n: client.invoke(FunctionName="function", Payload=json.dumps(n))["Payload"].read(),
            range(8),
        )
        assert [json.loads(answer) for answer in answers] == list(range(8))


def test_awslambdaric_as_it_is(tmp_path: Path) -> None:
    source = (
        "import sys\ndef handle(event, context):\n    return [event, 'quickthaw.snapshot' in sys.modules]\n"
    )
    with serving_source(tmp_path, source, bootstrap="awslambdaric", max_instances=2) as service:
        assert _invoke(service, {"a": 1})[0] == [{"a": 1}, False]


def test_a_users_folder_with_modules_named_like_ours(tmp_path: Path) -> None:
    for name in ("layers", "snapshot"):
        (tmp_path / f"{name}.py").write_text(f"NAME = 'the user s {name}'\n")
    source = "import layers, snapshot\ndef handle(event, context):\n    return [layers.NAME, snapshot.NAME]\n"
    with serving_source(tmp_path, source) as service:
        assert _invoke(service, {})[0] == ["the user s layers", "the user s snapshot"]
