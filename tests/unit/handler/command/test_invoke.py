# SPDX-License-Identifier: Apache-2.0
"""One cold start of a small function, watched from outside."""

import json
import os
from pathlib import Path

import pytest

from quickthaw.handler.command.invoke import ColdStart, run_cold_start
from quickthaw.snapshot.errors import FunctionError, FunctionExitedError, FunctionInitError
from tests.unit.handler.command import starts

TIMEOUT_S = 30.0
FUNCTION = """
import json
from quickthaw.handler.timeline import Timeline
from quickthaw.snapshot.streaming import StreamedResponse

timeline = Timeline()
timeline.mark("init")

def event(**fields):
    return f"data: {json.dumps(fields)}\\n\\n".encode()

def handle(request, context):
    timeline.mark("event")
    def chunks():
        timeline.mark("first token")
        yield event(token_id=7, text="Par")
        if request.get("fail"):
            raise ValueError("broke")
        yield event(token_id=8, text="is \\ud83e\\udd50")
        yield event(finish_reason="stop", model="tiny", usage={"total_tokens": 2})
        yield b"data: [DONE]\\n\\n"
        print("a line of its own")
        print(json.dumps(timeline.line(engine="interpreter", bytes_read=5)))
    return StreamedResponse(chunks(), "text/event-stream")
"""


def _run(tmp_path: Path, source: str, texts: list[str], logs: list[str], **event: object) -> ColdStart:
    (tmp_path / "function.py").write_text(source)
    environ = {**os.environ, "LAMBDA_TASK_ROOT": str(tmp_path)}
    return run_cold_start(event, environ, TIMEOUT_S, texts.append, logs.append, "function.handle")


def test_a_cold_start(tmp_path: Path) -> None:
    texts: list[str] = []
    logs: list[str] = []

    start = _run(tmp_path, FUNCTION, texts, logs, prompt="?")

    assert texts == ["Par", "is \N{CROISSANT}", ""]
    assert logs == ["a line of its own\n"]
    assert start.answer.token_ids == [7, 8]
    assert start.spawned_ns < start.ready_ns < start.first_token_ns <= start.end_ns
    names = [phase.name for phase in start.phases()]
    assert names == ["interpreter start", "awslambdaric", "init", "ready", "event", "first token"]


def test_parent_and_function_use_one_clock(tmp_path: Path) -> None:
    start = _run(tmp_path, FUNCTION, [], [])

    phases = {phase.name: phase for phase in start.phases()}
    assert phases["interpreter start"].start_ns == start.spawned_ns
    assert phases["interpreter start"].end_ns > start.spawned_ns
    assert phases["ready"].end_ns <= start.ready_ns
    assert phases["first token"].end_ns <= start.first_token_ns


def test_an_error_in_the_middle_keeps_what_was_said_before(tmp_path: Path) -> None:
    texts: list[str] = []
    with pytest.raises(FunctionError, match="ValueError: broke"):
        _run(tmp_path, FUNCTION, texts, [], fail=True)
    assert texts == ["Par"]


def test_a_function_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(FunctionInitError, match=r"Runtime\.ImportModuleError: .*not_there"):
        _run(tmp_path, "import not_there", [], [])


def test_a_function_that_dies(tmp_path: Path) -> None:
    with pytest.raises(FunctionExitedError, match="exit status 9"):
        _run(tmp_path, "import os\ndef handle(event, context):\n    os._exit(9)\n", [], [])


def test_the_json_object() -> None:
    document = json.loads(json.dumps(starts.make().to_json()))

    assert document["phases"][1] == {"name": "numpy", "start_ms": 8.0, "end_ms": 49.0, "size_bytes": 0}
    del document["phases"]
    assert document == {
        "text": "Paris",
        "token_ids": [1, 2],
        "finish_reason": "stop",
        "model": "m",
        "usage": {},
        "engine": "interpreter",
        "start": "cold",
        "timeline_ms": {"ready": 52.0, "first_token": 81.0},
        "bytes_read": 2_000_000,
        "major_faults": 3,
        "private_mib": 31.5,
    }
