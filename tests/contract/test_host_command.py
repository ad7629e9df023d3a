# SPDX-License-Identifier: Apache-2.0
"""`quickthaw host`, as a person uses it: from the address it prints to what it leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import create_server

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import shards
from tests.contract.fronts import TIMEOUT_S, wait_until
from tests.processes import is_gone

_COMMAND = [
    sys.executable,
    "-c",
    "import sys; from quickthaw.handler.cli import main; sys.exit(main())",
    "host",
]
HELLO = """
import os, time
print("a line of the function's own")
def handle(event, context):
    if event["rawPath"] == "/sleep":
        open("asleep", "w").close()
        time.sleep(60)
    return os.getpid()
"""


class Host:
    """A running command; its output comes line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        found = re.fullmatch(r"(\S+) on (http://127\.0\.0\.1:\d+)\n", self.line())
        assert found is not None
        self.handler, self.url = found.groups()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def get(self, path: str = "/") -> bytes:
        return self._ask("GET", path, None)[1]

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def _hosting(directory: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Iterator[Host]:
    command = [*_COMMAND, *arguments, "--port", "0"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", **(environ or {})}
    with subprocess.Popen(
        command, cwd=directory, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


def test_a_function_of_ones_own_restarted_when_it_dies(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HELLO)
    with _hosting(tmp_path, "mine.handle") as host:
        assert host.handler == "mine.handle"
        first = host.line()
        pid = int(host.get())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))
        wait_until(lambda: host.get().isdigit())
        second = host.line()

    assert re.fullmatch(rf"start 1: cold, ready after \d+\.\d ms, process {pid}\n", first)
    assert re.match(r"start 2: cold, ready after ", second)


def test_our_own_function(tmp_path: Path) -> None:
    arguments = ("--shards", str(shards.make(tmp_path)))
    with _hosting(tmp_path, *arguments, environ={"QUICKTHAW_CACHE": str(tmp_path / "cache")}) as host:
        assert host.handler == "quickthaw.handler.app.lambda_handler"
        assert b'"object":"list"' in host.get("/v1/models")
        assert host.line().startswith("start 1: ")
        assert host.post("/v1/completions", b'{"prompt": [1, 2], "max_tokens": 1}')[0] == 200
        timeline = host.line()
        (instance,) = json.loads(host.get("/_quickthaw/"))["instances"]

    assert re.match(r"process \d+, ms: interpreter start \d+\.\d, .*first token \d+\.\d", timeline)
    assert sum(instance["shards"].values()) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="the zygote engine needs Linux")
def test_clones_of_one_init(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.py").write_text(
        "import os\nopen('inits', 'a').write('.')\ndef handle(event, context):\n    return os.getpid()\n"
    )
    arguments = ("mine.handle", "--task-root", "task", "--start", "zygote", "--max-instances", "2")
    with _hosting(tmp_path, *arguments, "--min-warm", "2") as host:
        lines = [host.line() for _ in range(3)]
        pid = int(host.get())

    assert lines[0].startswith("captured in ")
    assert all(re.match(r"start [12]: zygote, ready after ", line) for line in lines[1:])
    assert str(pid) in "".join(lines[1:])
    assert (tmp_path / "task" / "inits").read_text() == "."


def test_the_hosts_own_pages(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HELLO)
    arguments = ("mine.handle", "--max-instances", "3", "--name", "mine", "--memory-mib", "500")
    with _hosting(tmp_path, *arguments) as host:
        host.get()
        invoked = host.post("/2015-03-31/functions/mine/invocations", b'{"rawPath": "/"}')
        document = json.loads(host.get("/_quickthaw/"))
        text = host.get("/_quickthaw/metrics").decode()
        missing = host.get("/_quickthaw/nothing")

    assert invoked[0] == 200
    assert document["function"] == {"name": "mine", "handler": "mine.handle"}
    (instance,) = document["instances"]
    assert str(instance["pid"]).encode() == invoked[1]
    assert (instance["state"], instance["requests"]) == ("idle", 2)
    assert document["requests"]["answered"] == 2
    assert document["limits"]["max_instances"] == 3
    assert missing == b'{"error":"not found"}'
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["quickthaw_host_request_seconds"].type == "histogram"
    (counted,) = families["quickthaw_host_requests"].samples
    assert (counted.labels, counted.value) == ({"outcome": "answered"}, 2)
    states = {sample.labels["state"]: sample.value for sample in families["quickthaw_host_instances"].samples}
    assert states == {"starting": 0, "idle": 1, "busy": 0}


def test_starts_that_fail_later_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HELLO)
    with _hosting(tmp_path, "mine.handle") as host:
        pid = int(host.line().split()[-1])
        (tmp_path / "mine.py").write_text("import not_there\n")
        os.kill(pid, signal.SIGKILL)
        assert host.line().startswith("start 2: failed, Runtime.ImportModuleError: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--min-warm", "3", "--max-instances", "2"], "--min-warm 3: there are 2 instances at most"),
        (["--max-instances", "0"], "expected at least 1, found 0"),
        (["--memory-mib", "x"], "expected a number, found x"),
        (["--task-root", "/nowhere"], "no such folder: /nowhere"),
        (["--warmup-event", "/nowhere"], "cannot read /nowhere"),
        (["--start", "thaw"], "invalid choice: 'thaw'"),
        (["--capture-dir", "d"], "only --start criu captures to disk"),
    ],
)
def test_a_wrong_command_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    process = subprocess.run([*_COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 2
    assert said in process.stderr


def test_nothing_is_captured_by_a_cold_start(tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text("{}")
    command = [*_COMMAND, "--warmup-event", "event.json"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 2
    assert "nothing is captured under --start cold" in process.stderr


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_the_end_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, exit_code: int) -> None:
    (tmp_path / "mine.py").write_text(HELLO)
    with _hosting(tmp_path, "mine.handle") as host:
        pid = int(host.line().split()[-1])
        connection = HTTPConnection(host.url.removeprefix("http://"), timeout=TIMEOUT_S)
        connection.request("GET", "/sleep")
        wait_until((tmp_path / "asleep").exists)
        host.process.send_signal(number)
        assert connection.getresponse().status == 502
        connection.close()
        output, errors = host.process.communicate(timeout=TIMEOUT_S)

    assert (host.process.returncode, output) == (exit_code, "")
    assert errors == "a line of the function's own\n"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("start", ["cold", "zygote"])
def test_a_host_that_is_killed_takes_its_function_along(tmp_path: Path, start: str, is_busy: bool) -> None:
    (tmp_path / "mine.py").write_text(HELLO)
    with _hosting(tmp_path, "mine.handle", "--start", start) as host:
        captured = re.search(r"process (\d+)", host.line()) if start == "zygote" else None
        pid = int(host.line().split()[-1])
        connection = HTTPConnection(host.url.removeprefix("http://"), timeout=TIMEOUT_S)
        if is_busy:
            connection.request("GET", "/sleep")
            wait_until((tmp_path / "asleep").exists)
        host.process.kill()
        wait_until(lambda: is_gone(pid))
        if captured is not None:
            wait_until(lambda: is_gone(int(captured[1])))
        connection.close()


def test_what_does_not_start_says_so(tmp_path: Path) -> None:
    with _hosting(tmp_path, "absent.handle") as host:
        _, errors = host.process.communicate(timeout=TIMEOUT_S)

    assert host.process.returncode == 69
    assert errors.splitlines()[-1].startswith("quickthaw: Runtime.ImportModuleError: Unable to import")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*_COMMAND, "--port", str(port)]
        process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)

    assert process.returncode == 69
    assert process.stderr == (
        f"quickthaw: cannot listen on 127.0.0.1:{port}: Address already in use; choose another port\n"
    )


def test_a_port_that_is_none(tmp_path: Path) -> None:
    command = [*_COMMAND, "--port", "65536"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)

    assert process.returncode == 69
    assert "cannot listen on 127.0.0.1:65536: no such port" in process.stderr


def test_the_extra_is_named_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('not here')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.run(_COMMAND, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)

    assert process.returncode == 69
    assert "pip install '.[host]'" in process.stderr
