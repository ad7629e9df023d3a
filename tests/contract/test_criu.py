# SPDX-License-Identifier: Apache-2.0
"""A process on disk, for real; what it has in common with other captures is in test_engines.py."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quickthaw.snapshot.engines.capture_directory import CaptureDirectory
from quickthaw.snapshot.engines.criu import BLANKED, CriuEngine
from quickthaw.snapshot.errors import CaptureDirectoryError, CriuFailedError, FunctionInitError
from quickthaw.snapshot.host.instance import Instance
from tests.contract.fronts import wait_until
from tests.criu import needs_criu
from tests.processes import is_gone

pytestmark = needs_criu

TIMEOUT_S = 120.0
COUNTER = """
import os
count = 0
print("init")
def handle(event, context):
    global count
    count += 1
    return [count, os.environ.get("AWS_SECRET_ACCESS_KEY")]
"""
QUICKTHAW = [
    sys.executable,
    "-c",
    "import sys; from quickthaw.handler.cli import main; sys.exit(main())",
    "snapshot",
]


@pytest.fixture
def task_root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "handler.py").write_text(COUNTER)
    return root


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@contextmanager
def started(engine: CriuEngine, output: list[str] | None = None, **environ: str) -> Iterator[Instance]:
    take = print if output is None else output.append
    with Instance(engine, {**os.environ, **environ}, take) as instance:
        instance.wait_ready(TIMEOUT_S)
        yield instance


def ask(instance: Instance, event: object = None) -> Any:
    return json.loads(
        b"".join(chunk.data for chunk in instance.invoke(json.dumps(event).encode(), TIMEOUT_S))
    )


def captures_of(said: list[str]) -> list[str]:
    return [line.split(" in ")[0] for line in said]


# --- what is on disk ---


def test_another_engine_restores_what_one_has_captured(task_root: Path, directory: Path) -> None:
    said: list[str] = []
    outputs: list[list[str]] = [[], []]
    for output in outputs:
        with CriuEngine("handler.handle", directory, str(task_root), say=said.append) as engine:
            for _ in range(2):
                with started(engine, output) as instance:
                    assert ask(instance)[0] == 1
    assert captures_of(said) == ["captured"]
    assert [output.count("init\n") for output in outputs] == [1, 0]


def test_nobody_else_can_read_it_and_no_credential_is_in_it(task_root: Path, directory: Path) -> None:
    secrets = {name: f"secret of {name}" for name in BLANKED}
    with (
        CriuEngine("handler.handle", directory, str(task_root)) as engine,
        started(engine, **secrets) as instance,
    ):
        assert ask(instance)[1] == secrets["AWS_SECRET_ACCESS_KEY"]
    assert directory.stat().st_mode & 0o777 == 0o700
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 1_000_000
    for path in files:
        assert b"secret of " not in path.read_bytes()


def test_one_that_criu_cannot_restore_is_replaced(task_root: Path, directory: Path) -> None:
    said: list[str] = []
    with CriuEngine("handler.handle", directory, str(task_root), say=said.append) as engine:
        with started(engine):
            pass
        (directory / "images" / "inventory.img").write_bytes(b"")
        with started(engine) as instance:
            assert ask(instance)[0] == 1
    assert captures_of(said)[0] == "captured"
    assert captures_of(said)[1].startswith("captured again, since criu restore failed: ")


def test_one_without_its_record_is_none(task_root: Path, directory: Path) -> None:
    said: list[str] = []
    with CriuEngine("handler.handle", directory, str(task_root), say=said.append) as engine:
        with started(engine):
            pass
        (directory / "capture.json").unlink()
        with started(engine):
            pass
    assert captures_of(said) == ["captured", "captured"]


def test_a_directory_with_something_else_is_left_alone(task_root: Path, directory: Path) -> None:
    directory.mkdir()
    (directory / "diary.txt").write_text("mine")
    with (
        CriuEngine("handler.handle", directory, str(task_root)) as engine,
        pytest.raises(CaptureDirectoryError, match=r"it holds diary\.txt"),
        started(engine),
    ):
        pass
    assert os.listdir(directory) == ["diary.txt"]


def test_a_failed_init_leaves_no_capture(task_root: Path, directory: Path) -> None:
    (task_root / "handler.py").write_text("1 / 0\n")
    with (
        CriuEngine("handler.handle", directory, str(task_root)) as engine,
        pytest.raises(FunctionInitError, match="ZeroDivisionError"),
        started(engine),
    ):
        pass
    assert os.listdir(directory) == ["images"]


def test_an_init_that_takes_too_long_is_ended(task_root: Path, directory: Path) -> None:
    (task_root / "handler.py").write_text("import time\ntime.sleep(600)\n")
    with (
        CriuEngine("handler.handle", directory, str(task_root), timeout_s=0.3) as engine,
        pytest.raises(FunctionInitError, match=r"Init timed out after 0\.30 seconds"),
        started(engine),
    ):
        pass
    assert not has_children()


def test_what_cannot_be_dumped_is_said(task_root: Path, directory: Path) -> None:
    (task_root / "handler.py").write_text(
        "import fcntl\nlock = open('lock', 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
        "def handle(event, context):\n    pass\n"
    )
    with (
        CriuEngine("handler.handle", directory, str(task_root)) as engine,
        pytest.raises(CriuFailedError, match=r"criu dump failed: .+"),
        started(engine),
    ):
        pass
    assert not has_children()


# --- processes ---


def has_children() -> bool:
    return any(task.read_text() for task in Path("/proc/self/task").glob("*/children"))


def test_one_that_is_killed_takes_its_own_processes_along(task_root: Path, directory: Path) -> None:
    source = """
import subprocess
def handle(event, context):
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
"""
    (task_root / "handler.py").write_text(source)
    with CriuEngine("handler.handle", directory, str(task_root)) as engine:
        for end in (Instance.kill, lambda instance: os.kill(instance.pid, signal.SIGKILL)):
            with started(engine) as instance:
                ask(instance)
                children = Path(f"/proc/{instance.pid}/task/{instance.pid}/children").read_text()
                sleeper = int(children.split()[0])
                end(instance)
                wait_until(lambda sleeper=sleeper: is_gone(sleeper))  # type: ignore[misc]


HOST = """
import os, sys
from pathlib import Path
from quickthaw.snapshot.engines.criu import CriuEngine
from quickthaw.snapshot.host.instance import Instance
engine = CriuEngine("handler.handle", Path(sys.argv[1]), sys.argv[2])
with engine, Instance(engine, os.environ, print) as instance:
    instance.wait_ready(120)
    print("pid", instance.pid, flush=True)
    sys.stdin.read()
"""


def test_a_host_that_is_killed_takes_its_clone_along_and_leaves_the_capture(
    task_root: Path, directory: Path
) -> None:
    command = [sys.executable, "-c", HOST, str(directory), str(task_root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = next(int(line.split()[1]) for line in host.stdout if line.startswith("pid "))
        assert not is_gone(pid)
        host.kill()
        wait_until(lambda: is_gone(pid))
    said: list[str] = []
    with (
        CriuEngine("handler.handle", directory, str(task_root), say=said.append) as engine,
        started(engine) as instance,
    ):
        assert ask(instance)[0] == 1
    assert said == []


def test_a_host_that_is_killed_takes_the_init_along(task_root: Path, directory: Path) -> None:
    source = "import os, time\nprint('pid', os.readlink('/proc/self'), flush=True)\ntime.sleep(600)\n"
    (task_root / "handler.py").write_text(source)
    command = [sys.executable, "-u", "-c", HOST, str(directory), str(task_root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = next(int(line.split()[1]) for line in host.stdout if line.startswith("pid "))
        assert not is_gone(pid)
        host.kill()
        wait_until(lambda: is_gone(pid))


def test_threads_go_on_in_a_clone(task_root: Path, directory: Path) -> None:
    source = """
import queue, threading
asked, answered = queue.SimpleQueue(), queue.SimpleQueue()
def work():
    while True:
        answered.put(asked.get() + 1)
threading.Thread(target=work, daemon=True).start()
def handle(event, context):
    asked.put(event)
    return answered.get()
"""
    (task_root / "handler.py").write_text(source)
    with CriuEngine("handler.handle", directory, str(task_root)) as engine:
        for number in (1, 2):
            with started(engine) as instance:
                assert ask(instance, number) == number + 1


def test_several_starts_at_once_capture_once_and_leave_nothing(task_root: Path, directory: Path) -> None:
    said: list[str] = []

    def start(_: object) -> int:
        with started(engine) as instance:
            n_events: int = ask(instance)[0]
            return n_events

    def held() -> tuple[int, list[str], list[str]]:
        return (
            len(os.listdir("/proc/self/fd")),
            os.listdir(directory),
            sorted(os.listdir(directory / "images")),
        )

    with (
        CriuEngine("handler.handle", directory, str(task_root), say=said.append) as engine,
        ThreadPoolExecutor(4) as threads,
    ):
        assert list(threads.map(start, range(4))) == [1] * 4
        before = held()
        assert list(threads.map(start, range(1000))) == [1] * 1000
        wait_until(lambda: held() == before)  # the last connection closes on a thread of its own
        assert not has_children()
    assert captures_of(said) == ["captured"]


# --- the command ---


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*QUICKTHAW, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_capture_inspect_and_restore_from_the_command_line(
    task_root: Path, directory: Path, tmp_path: Path
) -> None:
    event = tmp_path / "event.json"
    event.write_text("{}")

    captured = run("capture", directory, "handler.handle", "--task-root", task_root)
    assert (captured.returncode, captured.stderr) == (0, "init\n")
    assert captured.stdout.startswith("captured in ")

    inspected = run("inspect", directory)
    assert inspected.returncode == 0
    assert inspected.stdout.startswith(f"handler.handle of {task_root}, ")
    assert CaptureDirectory(directory).read().captured_at in inspected.stdout

    restored = run("restore", directory, "--event", event)
    assert (restored.returncode, restored.stdout) == (0, "[1,null]\n")
    assert restored.stderr.startswith("restored, ready after ")

    (task_root / "handler.py").write_text(COUNTER.replace("return [count,", "return ['new',"))
    stale = run("inspect", directory)
    assert (stale.returncode, "handler.py has changed" in stale.stderr) == (65, True)
    restored = run("restore", directory, "--event", event)
    assert restored.stdout == '["new",null]\n'
    assert "captured again, since handler.py has changed in " in restored.stderr


CLOCKS = """
import time
captured_ns = time.monotonic_ns()
def handle(event, context):
    begin_ns = time.monotonic_ns()
    time.sleep(0.01)
    return [captured_ns < begin_ns < time.monotonic_ns(), time.time()]
"""


def test_the_clocks_go_on_where_the_machines_have_begun_anew(
    task_root: Path, directory: Path, tmp_path: Path
) -> None:
    """As after a reboot, with half of the time since the last one."""
    (task_root / "handler.py").write_text(CLOCKS)
    event = tmp_path / "event.json"
    event.write_text("{}")
    assert run("capture", directory, "handler.handle", "--task-root", task_root).returncode == 0
    earlier = f"--monotonic=-{int(time.monotonic() / 2)}", f"--boottime=-{int(time.monotonic() / 2)}"
    command = ["unshare", "--time", "--fork", *earlier, *QUICKTHAW, "restore", directory, "--event", event]
    restored = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert restored.stderr.startswith("restored, ready after ")
    is_in_order, wall_s = json.loads(restored.stdout)
    assert is_in_order
    assert abs(wall_s - time.time()) < TIMEOUT_S


def test_serving_what_was_captured(task_root: Path, directory: Path) -> None:
    run("capture", directory, "handler.handle", "--task-root", task_root)
    command = [*QUICKTHAW, "restore", str(directory), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline().startswith("handler.handle on http://127.0.0.1:")
        assert host.stdout.readline().startswith("start 1: criu, ready after ")
        host.terminate()
        assert host.wait(TIMEOUT_S) == 143


def test_inspecting_what_is_no_capture(tmp_path: Path) -> None:
    done = run("inspect", tmp_path)
    assert (done.returncode, done.stdout) == (66, "")
    assert done.stderr.startswith(f"quickthaw: no capture in {tmp_path}: no capture.json; make one with ")
