# SPDX-License-Identifier: Apache-2.0
"""The same function under AWS's own Runtime Interface Emulator, by our bootstrap and by the stock one.

The emulator keeps a streamed answer back until it is whole; an error is a document with status 200.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quickthaw.snapshot.streaming import PRELUDE_END
from tests import shards
from tests.contract.emulator import Emulator, emulating
from tests.contract.fronts import OURS, serving

OURS_BY = "quickthaw.snapshot.bootstrap"
STOCK = "awslambdaric"
PROMPT: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
# The real function, and ways for its process to fail.
SOURCE = """
import os, time
from quickthaw.handler.app import lambda_handler
from quickthaw.snapshot.streaming import StreamedResponse

def handle(event, context):
    match event:
        case {"do": "raise"}:
            raise KeyError("missing")
        case {"do": "sleep"}:
            time.sleep(60)
        case {"do": "exit"}:
            os._exit(3)
        case {"do": "break off"}:
            return StreamedResponse(chunks())
        case {"do": "say who you are"}:
            return os.getpid()
        case {"do": "answer much"}:
            return "x" * 7_000_000
    return lambda_handler(event, context)

def chunks():
    yield b"half"
    raise KeyError("missing")
"""


def _environ(directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "QUICKTHAW_SHARDS": str(shards.make(directory)),
        "QUICKTHAW_CACHE": str(directory / "cache"),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "3",  # the start of a process is counted
    }


@pytest.fixture(scope="module", params=[OURS_BY, STOCK])
def bootstrap(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def emulator(
    tmp_path_factory: pytest.TempPathFactory, emulator_path: Path, bootstrap: str
) -> Iterator[Emulator]:
    task_root = tmp_path_factory.mktemp("task")
    (task_root / "handler.py").write_text(SOURCE)
    with emulating(emulator_path, task_root, "handler.handle", _environ(task_root), bootstrap) as emulator:
        yield emulator


def _http(method: str, path: str, body: object = None) -> dict[str, Any]:
    event = {"version": "2.0", "rawPath": path, "requestContext": {"http": {"method": method, "path": path}}}
    return event if body is None else {**event, "body": json.dumps(body)}


# --- answers ---


def test_a_direct_event(emulator: Emulator) -> None:
    answer = emulator.ask_json(PROMPT)

    assert (len(answer["token_ids"]), answer["finish_reason"]) == (4, "length")
    assert emulator.ask_json(PROMPT)["token_ids"] == answer["token_ids"]


def test_an_http_event(emulator: Emulator) -> None:
    answer = emulator.ask_json(_http("POST", "/v1/completions", PROMPT))

    assert (answer["statusCode"], answer["headers"]["content-type"]) == (200, "application/json")
    assert json.loads(answer["body"])["usage"]["completion_tokens"] == 4


def test_a_streamed_answer_comes_in_one_piece(emulator: Emulator, bootstrap: str) -> None:
    whole = emulator.ask_json(_http("POST", "/v1/completions", PROMPT))
    status, streamed = emulator.ask(_http("POST", "/v1/completions", {**PROMPT, "stream": True}))
    if bootstrap == OURS_BY:  # which streams, as it would on Lambda
        prelude, _, body = streamed.partition(PRELUDE_END)
    else:
        prelude, body = streamed, json.loads(streamed)["body"].encode()

    assert (status, json.loads(prelude)["statusCode"]) == (200, 200)
    *chunks, last, end = [event.removeprefix("data: ") for event in body.decode().split("\n\n")[:-1]]
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)
    assert text == json.loads(whole["body"])["choices"][0]["text"]
    assert (json.loads(last)["choices"][0]["finish_reason"], end, len(chunks)) == ("length", "[DONE]", 4)


def test_what_the_host_answers_is_what_the_emulator_answers(
    tmp_path: Path, emulator_path: Path, smollm2_shards: Path
) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    request = {"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
    limit = {"AWS_LAMBDA_FUNCTION_TIMEOUT": "60"}
    with emulating(emulator_path, tmp_path, OURS, {**os.environ, **environ, **limit}, OURS_BY) as emulator:
        emulated = json.loads(emulator.ask_json(_http("POST", "/v1/completions", request))["body"])
    with serving(OURS, tmp_path, environ) as service:
        _, hosted = service.post("/v1/completions", request)

    assert emulated["choices"] == hosted["choices"]
    assert emulated["choices"][0]["text"].startswith(" Paris")


# --- failures ---


def test_a_bad_request(emulator: Emulator) -> None:
    assert emulator.ask_json({**PROMPT, "max_tokens": 0})["error"]["param"] == "max_tokens"
    answer = emulator.ask_json(_http("POST", "/v1/completions", {**PROMPT, "max_tokens": 0}))
    assert answer["statusCode"] == 400


def test_a_handlers_exception(emulator: Emulator) -> None:
    answer = emulator.ask_json({"do": "raise"})

    assert (answer["errorType"], answer["errorMessage"]) == ("KeyError", "'missing'")


def test_an_answer_that_is_too_large(emulator: Emulator) -> None:
    status, body = emulator.ask({"do": "answer much"})

    assert (status, json.loads(body)["errorType"]) == (502, "Function.ResponseSizeTooLarge")
    assert emulator.ask_json(PROMPT)["finish_reason"] == "length"


def test_a_timeout_and_a_new_process(emulator: Emulator) -> None:
    before = emulator.ask_json({"do": "say who you are"})

    assert emulator.ask({"do": "sleep"}) == (200, b"Task timed out after 3.00 seconds")
    assert emulator.ask_json(PROMPT)["finish_reason"] == "length"
    assert emulator.ask_json({"do": "say who you are"}) != before


def test_a_crash_and_a_new_process(emulator: Emulator) -> None:
    before = emulator.ask_json({"do": "say who you are"})
    status, body = emulator.ask({"do": "exit"})

    assert (status, json.loads(body)["errorType"]) == (502, "Runtime.ExitError")
    assert emulator.ask_json(PROMPT)["finish_reason"] == "length"
    assert emulator.ask_json({"do": "say who you are"}) != before


def test_a_stream_that_breaks_off_harms_no_other(tmp_path: Path, emulator_path: Path) -> None:
    (tmp_path / "handler.py").write_text(SOURCE)
    environ = _environ(tmp_path)
    with emulating(emulator_path, tmp_path, "handler.handle", environ, OURS_BY) as emulator:
        assert emulator.ask({"do": "break off"}) == (200, b"half")  # it takes no notice of trailers
        assert emulator.ask_json(PROMPT)["finish_reason"] == "length"
        assert "failed after its answer had begun" in emulator.log


def test_a_function_that_does_not_start(tmp_path: Path, emulator_path: Path, bootstrap: str) -> None:
    (tmp_path / "handler.py").write_text("import not_there\n")
    with emulating(emulator_path, tmp_path, "handler.handle", os.environ, bootstrap) as emulator:
        status, body = emulator.ask({})

    assert (status, json.loads(body)["errorType"]) == (502, "Runtime.ImportModuleError")


def test_the_emulator_itself_started_again(tmp_path: Path, emulator_path: Path, bootstrap: str) -> None:
    (tmp_path / "handler.py").write_text(SOURCE)
    environ = _environ(tmp_path)
    answers, pids = [], []
    for _ in range(2):
        with emulating(emulator_path, tmp_path, "handler.handle", environ, bootstrap) as emulator:
            answers.append(emulator.ask_json(PROMPT))
            pids.append(emulator.ask_json({"do": "say who you are"}))

    assert answers[0] == answers[1]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
