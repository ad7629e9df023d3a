# SPDX-License-Identifier: Apache-2.0
"""Any handler on the real awslambdaric, through the Runtime API: our bootstrap and the stock one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.errors import (
    FunctionError,
    FunctionExitedError,
    FunctionInitError,
    FunctionTimeoutError,
)
from quickthaw.snapshot.host.instance import Instance
from tests import shards
from tests.contract.fronts import OURS
from tests.contract.functions import TIMEOUT_S, running

BOOTSTRAPS = ["quickthaw.snapshot.bootstrap", "awslambdaric"]
both = pytest.mark.parametrize("bootstrap", BOOTSTRAPS)


@both
def test_a_handler_sees_its_event_and_context(tmp_path: Path, bootstrap: str) -> None:
    source = """
def handle(event, context):
    remaining_ms = context.get_remaining_time_in_millis()
    return [event, context.aws_request_id, context.invoked_function_arn, remaining_ms]
"""
    with running(tmp_path, source, bootstrap=bootstrap) as function:
        event, request_id, arn, remaining_ms = function.ask_json({"text": "é \ud800 \0", "n": 2**70})

    assert event == {"text": "é \ud800 \0", "n": 2**70}
    assert len(request_id) == 36
    assert arn.startswith("arn:aws:lambda:")
    assert 0 < remaining_ms <= TIMEOUT_S * 1000


@both
def test_one_process_answers_many_events(tmp_path: Path, bootstrap: str) -> None:
    source = """
import os
n = 0
def handle(event, context):
    global n
    n += 1
    return n, os.getpid()
"""
    with running(tmp_path, source, bootstrap=bootstrap) as function:
        answers = [function.ask_json({}) for _ in range(50)]

    assert answers == [[n, function.instance.pid] for n in range(1, 51)]


@both
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("None", None),
        ("'é'", "é"),
        ("{1: 2**70}", {"1": 2**70}),
        ("__import__('decimal').Decimal('1.25')", 1.25),
        ("[True, 1.5, ()]", [True, 1.5, []]),
    ],
)
def test_results_are_json_as_ever(tmp_path: Path, bootstrap: str, expression: str, expected: object) -> None:
    with running(
        tmp_path, f"def handle(event, context):\n    return {expression}\n", bootstrap=bootstrap
    ) as f:
        assert f.ask_json({}) == expected


@both
def test_a_result_that_is_not_json_is_an_error_and_the_next_event_is_served(
    tmp_path: Path, bootstrap: str
) -> None:
    source = "def handle(event, context):\n    return object() if event else 'fine'\n"
    with running(tmp_path, source, bootstrap=bootstrap) as function:
        with pytest.raises(FunctionError, match="Unable to marshal response") as failure:
            function.ask(1)
        assert function.ask_json(0) == "fine"
    assert failure.value.error_type == "Runtime.MarshalError"


@both
def test_a_handlers_exception_arrives_whole(tmp_path: Path, bootstrap: str) -> None:
    source = "def handle(event, context):\n    raise KeyError('missing')\n"
    with running(tmp_path, source, bootstrap=bootstrap) as function, pytest.raises(FunctionError) as failure:
        function.ask({})
    assert (failure.value.error_type, failure.value.message) == ("KeyError", "'missing'")
    assert "raise KeyError" in failure.value.stack_trace[-1]


@both
@pytest.mark.parametrize(
    ("source", "error_type"),
    [
        ("import not_there", "Runtime.ImportModuleError"),
        ("def", "Runtime.UserCodeSyntaxError"),
        ("other = 1", "Runtime.HandlerNotFound"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_failed_init_is_reported(tmp_path: Path, bootstrap: str, source: str, error_type: str) -> None:
    with pytest.raises(FunctionInitError) as failure, running(tmp_path, source, bootstrap=bootstrap):
        pass
    assert failure.value.error_type == error_type


@both
def test_a_process_that_ends_is_noticed(tmp_path: Path, bootstrap: str) -> None:
    source = "import os, signal\ndef handle(event, context):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    with running(tmp_path, source, bootstrap=bootstrap) as function:
        for _ in range(2):  # the second event finds nobody
            with pytest.raises(FunctionExitedError, match=r"Runtime\.ExitError: .*signal: killed"):
                function.ask({})


@both
def test_a_function_is_killed_at_its_deadline(tmp_path: Path, bootstrap: str) -> None:
    source = "import time\ndef handle(event, context):\n    time.sleep(60)\n"
    with running(tmp_path, source, bootstrap=bootstrap) as function:
        with pytest.raises(FunctionTimeoutError, match=r"Task timed out after 0\.25 seconds"):
            function.ask({}, timeout_s=0.25)
        with pytest.raises(FunctionExitedError):
            function.ask({})


def test_init_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("import time\ntime.sleep(60)\n")
    with (
        Instance(ColdEngine("handler.handle", str(tmp_path)), os.environ, print) as instance,
        pytest.raises(FunctionInitError, match=r"timed out after 0\.25 seconds"),
    ):
        instance.wait_ready(0.25)


def test_a_task_root_with_our_own_folders_names(tmp_path: Path) -> None:
    for name in ("layers", "snapshot", "runtime_client", "queue", "json"):
        (tmp_path / f"{name}.py").write_text(f"WHO = 'user {name}'\n")
    source = """
import layers, runtime_client, snapshot
import quickthaw.snapshot.marks
def handle(event, context):
    return [layers.WHO, snapshot.WHO, runtime_client.WHO, __file__]
"""
    with running(tmp_path, source) as function:
        answer = function.ask_json({})

    assert answer == ["user layers", "user snapshot", "user runtime_client", str(tmp_path / "handler.py")]


def test_a_users_orjson_takes_no_answer_away(tmp_path: Path) -> None:
    (tmp_path / "orjson.py").write_text("raise RuntimeError('none of yours')\n")
    with running(tmp_path, "def handle(event, context):\n    return event\n") as function:
        assert function.ask_json({"a": [1]}) == {"a": [1]}


def test_our_own_handler_runs_nothing_of_the_working_folder(tmp_path: Path) -> None:
    installed = {"awslambdaric", "jinja2", "numpy", "orjson", "quickthaw", "runtime_client", "simplejson"}
    for name in installed | sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was run')\n")
    environ = {
        **os.environ,
        "QUICKTHAW_SHARDS": str(shards.make(tmp_path / "model")),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    output: list[str] = []
    with Instance(ColdEngine(OURS, str(tmp_path)), environ, output.append) as instance:
        instance.wait_ready(TIMEOUT_S)
        for event in ({"prompt": [1], "max_tokens": 2}, {"prompt": [1], "max_tokens": 2, "stream": True}):
            answer = b"".join(chunk.data for chunk in instance.invoke(json.dumps(event).encode(), TIMEOUT_S))
            assert b'"finish_reason":"length"' in answer
        assert b"[DONE]" in answer

    lines = [json.loads(line)["quickthaw"] for line in output if line.strip()]
    assert lines[:2] == ["request", "start"]


def test_the_handlers_blas_keeps_to_one_thread_unless_told_otherwise(tmp_path: Path) -> None:
    source = "import os\ndef handle(event, context):\n    return os.environ['OPENBLAS_NUM_THREADS']\n"
    with running(tmp_path, source) as function:
        assert function.ask_json({}) == "1"
    with running(tmp_path, source, environ={"OPENBLAS_NUM_THREADS": "2"}) as function:
        assert function.ask_json({}) == "2"


def test_garbage_is_collected_again_after_init_and_what_init_made_is_left_alone(tmp_path: Path) -> None:
    source = """
import gc
at_init = gc.isenabled()
def handle(event, context):
    return [at_init, gc.isenabled(), gc.get_freeze_count() > 1000]
"""
    with running(tmp_path, source) as function:
        assert function.ask_json({}) == [False, True, True]


@both
def test_snapstarts_hooks_run_around_the_restore(tmp_path: Path, bootstrap: str) -> None:
    source = """
import sys
from snapshot_restore_py import register_after_restore, register_before_snapshot
log = []
for n in (1, 2):
    register_before_snapshot(lambda n=n: log.append(f"before {n}"))
    register_after_restore(lambda n=n: log.append(f"after {n}"))
def handle(event, context):
    return log
"""
    environ = {"AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
    with running(tmp_path, source, bootstrap=bootstrap, environ=environ) as function:
        assert function.ask_json({}) == ["before 2", "before 1", "after 1", "after 2"]


def test_the_transport_does_not_exist_while_a_snapshot_may_be_taken(tmp_path: Path) -> None:
    source = """
import sys
from awslambdaric import lambda_runtime_client
from snapshot_restore_py import register_after_restore, register_before_snapshot
seen = []
look = lambda: seen.append(lambda_runtime_client.runtime_client is not None)
register_before_snapshot(look)
register_after_restore(look)
def handle(event, context):
    look()
    return seen
"""
    environ = {"AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
    with running(tmp_path, source, environ=environ) as function:
        assert function.ask_json({}) == [False, False, True]


@pytest.mark.parametrize("arguments", [[], ["a.b", "c.d"]])
def test_a_wrong_command_line_is_one_line(arguments: list[str]) -> None:
    environ = {**os.environ, "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:1"}
    command = [sys.executable, "-m", "quickthaw.snapshot.bootstrap", *arguments]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)

    assert process.returncode == 1
    assert process.stderr.startswith("quickthaw bootstrap: expected one argument")
    assert process.stderr.count("\n") == 1


def test_an_answer_over_lambdas_limit_is_refused(tmp_path: Path) -> None:
    source = "def handle(event, context):\n    return 'x' * event\n"
    with (
        running(tmp_path, source) as function,
        pytest.raises(FunctionError, match="exceeded maximum allowed payload size") as failure,
    ):
        function.ask(7 * 1024 * 1024)
    assert failure.value.error_type == "Function.ResponseSizeTooLarge"
