# SPDX-License-Identifier: Apache-2.0
"""The zygote engine's captured process and its clones, as the host holds them; forks.py is the other side."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue

from quickthaw.snapshot import config
from quickthaw.snapshot.engines.cold import ColdProcess, command
from quickthaw.snapshot.engines.engine import exited
from quickthaw.snapshot.errors import FunctionInitError
from quickthaw.snapshot.host.invocation import init_timeout_error
from quickthaw.snapshot.host.lifeline import Lifeline
from quickthaw.snapshot.host.runtime_api import RuntimeApi

_FORK_TIMEOUT_S = 30.0
_MESSAGE_BYTES = 512


class ZygoteGoneError(Exception):
    """The captured process has ended; another one has to be captured. Never leaves the engine."""


class Clone:
    """A fork of the captured process, which waits for it and says how it ended."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.spawned_ns = 0
        self._pid = pid
        self._pidfd = pidfd
        self._status = 0
        self._lock = threading.Lock()
        self._has_ended = threading.Event()

    @property
    def pid(self) -> int:
        """Not used again before the captured process has waited for it."""
        return self._pid

    @property
    def pidfd(self) -> int:
        """Readable when it has ended."""
        return self._pidfd

    def wait(self) -> int:
        """Block until it has ended; 0 where the captured process ended before it."""
        self._has_ended.wait()
        return self._status

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        with self._lock:
            if not self._has_ended.is_set():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def end(self, status: int) -> None:
        """It has ended."""
        with self._lock:
            self._status = status
            os.close(self._pidfd)
            self._has_ended.set()


class CapturedProcess:
    """A process that runs its init now, and is forked later; it ends with this process, however that ends."""

    def __init__(self, handler: str, environ: Mapping[str, str], task_root: str | None, output: int) -> None:
        """Spawn it. `environ` is its first clone's, but for the Runtime API, which hears what goes wrong."""
        self._api = RuntimeApi()
        self._lifeline = Lifeline()
        self._control, process_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {
            **environ,
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            config.RESTORE_GATE: f"fd:{process_end.fileno()},{self._lifeline.process_end}",
        }
        kept = (process_end.fileno(), self._lifeline.process_end)
        with process_end:
            self._process = ColdProcess(command(handler), environ, task_root, output, kept)
        self._lifeline.attach(self._process.pid)
        self._answers: SimpleQueue[Clone | str | None] = SimpleQueue()
        self._clones: dict[int, Clone] = {}
        self._captured_ns: int | None = None  # when it could first be forked
        self._is_gone = False

    @property
    def pid(self) -> int:
        """The captured process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be forked, as far as is known."""
        return not self._is_gone

    def wait_captured(self, timeout_s: float) -> None:
        """Wait until its init is over and it can be forked.

        Raises: FunctionInitError, FunctionExitedError.
        """
        self._control.settimeout(timeout_s)
        try:
            message = self._control.recv(_MESSAGE_BYTES)
        except TimeoutError:
            self._api.fail(init_timeout_error(timeout_s))
            message = b""
        except ConnectionError:
            message = b""
        if message != b"captured":
            self.kill()
            self._api.fail(exited(self._process.wait()))
            assert self._api.failure is not None
            raise self._api.failure
        self._control.settimeout(None)
        self._api.close()
        self._captured_ns = time.monotonic_ns()
        threading.Thread(target=self._listen, name="zygote", daemon=True).start()

    def fork(self, environ: bytes, output: int, lifeline: int, asked_ns: int) -> Clone:
        """Have it fork. One at a time. `asked_ns` is when a clone was wanted, maybe before the capture.

        Raises: ZygoteGoneError; FunctionInitError when the kernel refuses.
        """
        assert self._captured_ns is not None
        document = os.memfd_create("environ")
        try:
            with open(document, "wb", closefd=False) as file:
                file.write(environ)
            socket.send_fds(self._control, [b"start"], [document, output, lifeline])
            answer = self._answers.get(timeout=_FORK_TIMEOUT_S)
        except (OSError, Empty) as exc:
            raise ZygoteGoneError from exc
        finally:
            os.close(document)
        if answer is None:
            raise ZygoteGoneError
        if isinstance(answer, str):
            raise FunctionInitError("Runtime.ForkFailed", f"the captured function cannot be forked: {answer}")
        answer.spawned_ns = max(asked_ns, self._captured_ns)
        return answer

    def kill(self) -> None:
        """SIGKILL; its clones live on."""
        self._process.kill()

    def close(self) -> None:
        """Kill it and wait for its end."""
        self.kill()
        self._process.wait()
        self._lifeline.cut()
        self._api.close()
        if self._captured_ns is None:
            self._control.close()  # else who listens does

    def _listen(self) -> None:
        """Take what it says until it has ended, and then see its last clones end."""
        with self._control, suppress(ConnectionError):
            while True:
                message, pidfds, _, _ = socket.recv_fds(
                    self._control, _MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
                if not message:
                    break
                self._take(message.decode(), pidfds)
        self._is_gone = True
        self._answers.put(None)
        self._process.wait()
        _see_end(list(self._clones.values()))

    def _take(self, message: str, pidfds: list[int]) -> None:
        word, _, rest = message.partition(" ")
        if word == "started":
            clone = Clone(int(rest), pidfds[0])
            self._clones[clone.pid] = clone
            self._answers.put(clone)
        elif word == "ended":
            pid, status = map(int, rest.split())
            self._clones.pop(pid).end(status)
        else:
            self._answers.put(rest)


def _see_end(clones: list[Clone]) -> None:
    """Wait for clones whose parent can no longer tell their status."""
    poller = select.poll()
    left = {clone.pidfd: clone for clone in clones}
    for pidfd in left:
        poller.register(pidfd, select.POLLIN)
    while left:
        for pidfd, _ in poller.poll():
            poller.unregister(pidfd)
            left.pop(pidfd).end(0)
