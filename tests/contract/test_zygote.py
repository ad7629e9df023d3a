# SPDX-License-Identifier: Apache-2.0
"""The zygote: a process that forks, what becomes of it and of its clones, and what it refuses to capture."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from quickthaw.snapshot.engines.zygote import ZygoteEngine
from quickthaw.snapshot.errors import FunctionExitedError, FunctionInitError
from tests.contract.engines import engine_for, started
from tests.contract.fronts import wait_until
from tests.processes import is_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds and /proc")

PID = """
import os
def handle(event, context):
    return os.getpid()
"""


def test_clones_outlive_their_zygote_and_the_next_start_captures_anew(tmp_path: Path) -> None:
    said: list[str] = []
    with engine_for(ZygoteEngine, tmp_path, PID, say=said.append) as engine, started(engine) as function:
        assert isinstance(engine, ZygoteEngine)
        zygote = engine.pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        wait_until(lambda: is_gone(zygote))

        assert function.ask_json() == function.instance.pid
        with started(engine) as other:
            assert other.ask_json() == other.instance.pid
        assert engine.pid != zygote
        os.kill(function.instance.pid, signal.SIGKILL)
        with pytest.raises(FunctionExitedError):
            function.ask()
    assert [line.split(" in ")[0] for line in said] == [
        "captured",
        f"captured again, since process {zygote} has ended",
    ]


def children(pid: int | None) -> list[int]:
    """Those of a process of one thread that have not been waited for."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def mapped_mib(pid: int) -> int:
    """What it has of files in its page tables."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssFile:")[2].split()[0]) // 1024


MAPPING = """
import mmap
with open("big", "rb") as file:
    big = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
touched = sum(big[::4096])
def handle(event, context):
    return len(big)
"""


def test_a_clone_that_was_forked_ahead_has_the_pages_of_files(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(64 << 20))
    with engine_for(ZygoteEngine, tmp_path, MAPPING) as engine:
        assert isinstance(engine, ZygoteEngine)
        with started(engine) as function:
            assert mapped_mib(function.instance.pid) < 64
        wait_until(lambda: len(children(engine.pid)) == 1)
        (ahead,) = children(engine.pid)
        wait_until(lambda: mapped_mib(ahead) > 64)
        with started(engine) as function:
            assert function.instance.pid == ahead
            assert function.ask_json() == 64 << 20


def test_a_clone_that_ends_before_its_start_is_replaced(tmp_path: Path) -> None:
    with engine_for(ZygoteEngine, tmp_path, PID) as engine:
        assert isinstance(engine, ZygoteEngine)
        with started(engine):
            pass
        wait_until(lambda: len(children(engine.pid)) == 1)
        (ahead,) = children(engine.pid)
        os.kill(ahead, signal.SIGKILL)
        wait_until(lambda: ahead not in children(engine.pid))
        with started(engine) as function:
            assert function.ask_json() == function.instance.pid != ahead
        wait_until(lambda: len(children(engine.pid)) == 1)
        (ahead,) = children(engine.pid)
    wait_until(lambda: is_gone(ahead))


HOST = """
import os, sys
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from quickthaw.snapshot.host.instance import Instance
with ZygoteEngine("handler.handle", sys.argv[1]) as engine, Instance(engine, os.environ, print) as instance:
    instance.wait_ready(60)
    print(engine.pid, instance.pid, flush=True)
    instance.invoke(b"{}", 600)
    sys.stdin.read()
"""


def test_a_host_that_is_killed_takes_zygote_and_clone_along(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("def handle(event, context):\n    while True:\n        pass\n")
    command = [sys.executable, "-c", HOST, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        wait_until(lambda: len(children(pids[0])) == 2)  # with the one that is forked ahead
        pids = sorted({*pids, *children(pids[0])})
        assert [is_gone(pid) for pid in pids] == [False] * 3
        host.kill()
        for pid in pids:
            wait_until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


def open_files(process: int | str) -> Iterator[str]:
    """The kinds of what a process has open: a path, or "socket:", "pipe:" without their numbers."""
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory itself, while it was listed
            yield re.sub(r":\[\d+\]$", "", os.readlink(link))


def test_many_restores_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where nobody else leaves anything meanwhile
    monkeypatch.setattr(tempfile, "tempdir", None)
    with engine_for(ZygoteEngine, tmp_path, "def handle(event, context):\n    pass\n") as engine:
        assert isinstance(engine, ZygoteEngine)

        def start(_: object = None) -> None:
            with started(engine):
                pass

        def held() -> Counter[str]:
            """What is open here and in the zygote, by kind, and what lies in the folder."""
            gc.collect()  # what earlier tests left in cycles would be closed at any moment
            return Counter([*os.listdir(tempfile.gettempdir()), *open_files("self"), *open_files(engine.pid)])

        def is_quiet() -> bool:
            """No child is left but the one forked ahead, and no connection.

            Each of these closes on a thread of its own, which may outlive its instance by a moment.
            """
            names = [thread.name for thread in threading.enumerate()]
            return len(children(engine.pid)) == 1 and "runtime-api" not in names

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(start, range(8)))
            wait_until(is_quiet)
            before = held()
            list(threads.map(start, range(1000)))
            wait_until(is_quiet)
            assert held() - before == Counter()


# --- what is captured ---


def test_a_capture_that_is_out_of_date_is_not_used(tmp_path: Path) -> None:
    source = "def handle(event, context):\n    return {}\n"
    said: list[str] = []
    with engine_for(ZygoteEngine, tmp_path, source.format(1), say=said.append) as engine:
        for _ in range(2):
            with started(engine) as function:
                assert function.ask_json() == 1
        (tmp_path / "handler.py").write_text(source.format(22))
        with started(engine) as function:
            assert function.ask_json() == 22
        with started(engine, QUICKTHAW_MAX_TOKENS="7"):
            pass
    assert [line.split(" in ")[0] for line in said] == [
        "captured",
        "captured again, since handler.py has changed",
        "captured again, since QUICKTHAW_MAX_TOKENS is new: 7",
    ]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("threading.Thread(target=time.sleep, args=(600,), name='poller', daemon=True).start()", "poller"),
        ("ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, pause, None)", "(native)"),
    ],
    ids=["python", "native"],
)
def test_a_function_with_threads_is_refused_by_their_names(tmp_path: Path, statement: str, name: str) -> None:
    source = f"""
import ctypes, threading, time
pause = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p)
{statement}
def handle(event, context):
    pass
"""
    with (
        engine_for(ZygoteEngine, tmp_path, source) as engine,
        pytest.raises(FunctionInitError) as failure,
        started(engine),
    ):
        pass
    assert failure.value.error_type == "CaptureRefusedError"
    assert name in failure.value.message


def test_blas_threads_end_before_a_fork_and_work_after_it(tmp_path: Path) -> None:
    source = """
import os
import numpy as np
a = np.ones((500, 500))
a @ a
n_tasks = len(os.listdir("/proc/self/task"))
def handle(event, context):
    return [n_tasks, float((a @ a)[0, 0])]
"""
    with engine_for(ZygoteEngine, tmp_path, source) as engine:
        for _ in range(2):
            with started(engine, OPENBLAS_NUM_THREADS="2") as function:
                n_tasks, product = function.ask_json()
                assert product == 500
                assert n_tasks > 1 or os.cpu_count() == 1


def test_an_init_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    source = "import time\ntime.sleep(600)\n"
    with (
        engine_for(ZygoteEngine, tmp_path, source, timeout_s=0.3) as engine,
        pytest.raises(FunctionInitError, match=r"Init timed out after 0\.30 seconds"),
        started(engine),
    ):
        pass
