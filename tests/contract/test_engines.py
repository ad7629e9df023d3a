# SPDX-License-Identifier: Apache-2.0
"""Every engine keeps the same promises; some are asked of those alone that capture."""

import json
import os
import signal
import sys
from pathlib import Path
from socket import create_server

import pytest

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.errors import (
    FunctionError,
    FunctionExitedError,
    FunctionInitError,
    FunctionRestoreError,
)
from tests import shards
from tests.contract.engines import TIMEOUT_S, MakeEngine, capturing, engine_for, every, started
from tests.contract.fronts import OURS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds and /proc")


def pid_as_it_sees_it(pid: int) -> int:
    """In its own namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])


def get(path: str, **headers: str) -> dict[str, object]:
    """A function URL's event."""
    http = {"method": "GET", "path": path}
    return {"version": "2.0", "rawPath": path, "headers": headers, "requestContext": {"http": http}}


# --- answers ---


@every
def test_a_clone_says_what_a_plain_start_says(
    smollm2_shards: Path, tmp_path: Path, make_engine: MakeEngine
) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path)}
    prompt = {"prompt": "The capital of France is", "max_tokens": 6}
    events = [prompt, {**prompt, "temperature": 1.0, "seed": 7}, {**prompt, "stream": True}]
    with started(ColdEngine(OURS), **environ) as function:
        expected = [function.ask(event) for event in events]
    with make_engine(OURS) as engine:
        for _ in range(2):
            with started(engine, **environ) as function:
                assert [function.ask(event) for event in events] == expected


@every
def test_a_users_folder_may_hold_our_names(tmp_path: Path, make_engine: MakeEngine) -> None:
    for name in ("layers", "snapshot", "json", "socket"):
        (tmp_path / f"{name}.py").write_text(f"WHO = 'user {name}'\n")
    source = """
import layers, snapshot
def handle(event, context):
    return [layers.WHO, snapshot.WHO, __file__]
"""
    with engine_for(make_engine, tmp_path, source) as engine, started(engine) as function:
        assert function.ask_json() == ["user layers", "user snapshot", str(tmp_path / "handler.py")]


@every
def test_output_is_its_own(tmp_path: Path, make_engine: MakeEngine) -> None:
    source = (
        "import os\ndef handle(event, context):\n    print(event)\n    os.system('echo from the shell')\n"
    )
    with engine_for(make_engine, tmp_path, source) as engine:
        outputs = []
        for word in ("one", "two"):
            with started(engine) as function:
                function.ask(word)
            outputs.append("".join(function.output).split("\n")[:2])
    assert outputs == [["one", "from the shell"], ["two", "from the shell"]]


# --- what no two processes share ---

IDENTITY = """
import os, random, sys, tempfile, uuid
import numpy as np, numpy.random
random.seed(1), np.random.seed(1), uuid.uuid1(), tempfile.mktemp()
def handle(event, context):
    return [random.random(), np.random.random(), str(uuid.uuid4()), str(uuid.uuid1()), uuid.uuid1().node,
            tempfile.mktemp(), os.environ["AWS_LAMBDA_RUNTIME_API"]]
"""


@capturing
def test_two_clones_share_no_chance_and_no_name(tmp_path: Path, make_engine: MakeEngine) -> None:
    with (
        engine_for(make_engine, tmp_path, IDENTITY) as engine,
        started(engine) as one,
        started(engine) as two,
    ):
        for mine, other in zip(one.ask_json(), two.ask_json(), strict=True):
            assert mine != other
        assert one.instance.pid != two.instance.pid
        assert os.getpgid(one.instance.pid) != os.getpgid(two.instance.pid)


@every
def test_the_environment_is_that_of_the_start(tmp_path: Path, make_engine: MakeEngine) -> None:
    source = """
import os
at_init = os.environ["AWS_SECRET_ACCESS_KEY"]
def handle(event, context):
    return [os.environ.get(name) for name in ("AWS_SECRET_ACCESS_KEY", "ONLY_ONE", "QUICKTHAW_RESTORE_GATE")]
"""
    with engine_for(make_engine, tmp_path, source) as engine:
        with started(engine, AWS_SECRET_ACCESS_KEY="old", ONLY_ONE="yes") as function:
            assert function.ask_json() == ["old", "yes", None]
        with started(engine, AWS_SECRET_ACCESS_KEY="rotated") as function:
            assert function.ask_json() == ["rotated", None, None]


@capturing
def test_our_own_api_keys_are_those_of_the_start(tmp_path: Path, make_engine: MakeEngine) -> None:
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make_chat(tmp_path)),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    event = get("/v1/models", authorization="Bearer new")
    with make_engine(OURS) as engine:
        statuses = []
        for keys in ("old", "new"):
            with started(engine, **environ, QUICKTHAW_API_KEYS=keys) as function:
                statuses.append(function.ask_json(event)["statusCode"])
    assert statuses == [401, 200]


OPEN = """
import os
def handle(event, context):
    places = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            places.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except OSError:
            pass  # what the folder itself was listed with
    return sorted(places)
"""


@capturing
def test_a_clone_has_the_descriptors_of_a_plain_start(tmp_path: Path, make_engine: MakeEngine) -> None:
    with engine_for(ColdEngine, tmp_path, OPEN) as engine, started(engine) as function:
        expected = function.ask_json()
    for _ in range(2):
        expected.remove("socket")  # a pair with which the native transport wakes itself
    with (
        engine_for(make_engine, tmp_path, OPEN) as engine,
        started(engine) as first,
        started(engine) as second,
    ):
        assert first.ask_json() == expected
        assert second.ask_json() == expected


@capturing
def test_a_connection_of_the_init_is_closed_in_a_clone(tmp_path: Path, make_engine: MakeEngine) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        source = f"""
import socket
connection = socket.create_connection({server.getsockname()!r})
def handle(event, context):
    return [connection.recv(1).decode(), connection.recv(1).decode()]
"""
        with engine_for(make_engine, tmp_path, source) as engine, started(engine) as function:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"x")  # which every clone would read, or none
                assert function.ask_json() == ["", ""]


# --- hooks ---

HOOKS = """
from snapshot_restore_py import register_after_restore, register_before_snapshot
log = []
for n in (1, 2):
    register_before_snapshot(log.append, f"before {n}")
    register_after_restore(log.append, f"after {n}")
def handle(event, context):
    return log
"""


@capturing
def test_hooks_run_in_awss_order_and_before_the_snapshot_once(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    with engine_for(make_engine, tmp_path, HOOKS) as engine:
        for _ in range(2):
            with started(engine) as function:
                assert function.ask_json() == ["before 2", "before 1", "after 1", "after 2"]


@capturing
def test_a_hook_that_fails_before_the_snapshot(tmp_path: Path, make_engine: MakeEngine) -> None:
    source = HOOKS + "register_before_snapshot(lambda: 1 / 0)\n"
    with engine_for(make_engine, tmp_path, source) as engine:
        for _ in range(2):
            with pytest.raises(FunctionInitError) as failure, started(engine):
                pass
            assert (failure.value.error_type, failure.value.message) == (
                "ZeroDivisionError",
                "division by zero",
            )


@capturing
def test_a_hook_that_fails_after_the_restore_fails_that_start_alone(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    source = HOOKS + "import os\nregister_after_restore(lambda: 1 / int(os.environ['DIVISOR']))\n"
    with engine_for(make_engine, tmp_path, source) as engine:
        with started(engine, DIVISOR="1"):
            pass
        with pytest.raises(FunctionRestoreError) as failure, started(engine, DIVISOR="0"):
            pass
        assert failure.value.error_type == "ZeroDivisionError"
        with started(engine, DIVISOR="1") as function:
            assert function.ask_json()[-1] == "after 2"


# --- the warm-up ---


@capturing
def test_a_warm_up_event_is_answered_by_the_captured_process_and_heard_by_nobody(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    source = HOOKS + "def handle(event, context):\n    print(event)\n    log.append(event)\n    return log\n"
    event = tmp_path / "event.json"
    event.write_text('"warm-up"')
    with (
        engine_for(make_engine, tmp_path, source) as engine,
        started(engine, QUICKTHAW_WARMUP_EVENT=str(event)) as function,
    ):
        assert function.ask_json("mine") == ["warm-up", "before 2", "before 1", "after 1", "after 2", "mine"]
    assert "".join(function.output).splitlines() == ["mine"]


@capturing
def test_a_warm_up_event_that_fails_fails_the_capture(tmp_path: Path, make_engine: MakeEngine) -> None:
    with engine_for(
        make_engine, tmp_path, "def handle(event, context):\n    return event['missing']\n"
    ) as engine:
        event = tmp_path / "event.json"
        for text, error_type in [("{}", "KeyError"), ("{", "BootstrapError")]:
            event.write_text(text)
            with (
                pytest.raises(FunctionInitError) as failure,
                started(engine, QUICKTHAW_WARMUP_EVENT=str(event)),
            ):
                pass
            assert failure.value.error_type == error_type


@capturing
def test_our_own_warm_up_leaves_no_trace(tmp_path: Path, make_engine: MakeEngine) -> None:
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make_chat(tmp_path)),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    event = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    with make_engine(OURS) as engine, started(engine, **environ) as function:
        answer = function.ask_json(event)
        metrics = function.ask_json(get("/metrics"))["body"]
    lines = [json.loads(line) for line in function.output if line.startswith("{")]

    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert f'quickthaw_requests_total{{start="{engine.name}"}} 1' in metrics
    assert [(line["quickthaw"], line["start"]) for line in lines[:2]] == [
        ("request", engine.name),
        ("start", engine.name),
    ]
    assert lines[0]["read_bytes"] == lines[1]["bytes_read"] == 0  # it mapped every shard before
    assert [phase["name"] for phase in lines[1]["phases"][:2]] == ["restore", "ready"]


# --- ends ---


@every
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("os._exit(3)", "Runtime exited with error: exit status 3"),
        ("os._exit(0)", "Runtime exited without providing a reason"),
        ("os.kill(os.getpid(), 9)", "Runtime exited with error: signal: killed"),
        ("sys.exit(4)", "Runtime exited with error: exit status 4"),
    ],
)
def test_the_end_of_a_process_in_lambdas_words(
    tmp_path: Path, make_engine: MakeEngine, statement: str, words: str
) -> None:
    source = f"import os, sys\ndef handle(event, context):\n    {statement}\n"
    with engine_for(make_engine, tmp_path, source) as engine, started(engine) as function:
        with pytest.raises(FunctionExitedError) as failure:
            function.ask()
        assert failure.value.message == words


STREAM = """
import os, time
from quickthaw.snapshot.streaming import StreamedResponse
def chunks():
    yield b"first"
    time.sleep(600)
def handle(event, context):
    return os.getpid() if event == "pid" else StreamedResponse(chunks())
"""


@every
def test_a_process_that_is_killed_while_it_streams(tmp_path: Path, make_engine: MakeEngine) -> None:
    with engine_for(make_engine, tmp_path, STREAM) as engine:
        with started(engine) as function:
            chunks = function.instance.invoke(b"{}", TIMEOUT_S)
            assert next(chunks).data == b"first"
            os.kill(function.instance.pid, signal.SIGKILL)
            with pytest.raises(FunctionExitedError, match="signal: killed"):
                next(chunks)
        with started(engine) as function:
            assert function.ask_json("pid") == pid_as_it_sees_it(function.instance.pid)


@every
def test_an_init_that_fails_is_told(tmp_path: Path, make_engine: MakeEngine) -> None:
    with (
        engine_for(make_engine, tmp_path, "import not_there\n") as engine,
        pytest.raises(FunctionError) as failure,
        started(engine),
    ):
        pass
    assert failure.value.error_type == "Runtime.ImportModuleError"
