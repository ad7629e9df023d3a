# SPDX-License-Identifier: Apache-2.0
"""What every way of starting a function process has in common; README.md compares them."""

import signal
from collections.abc import Mapping
from typing import Protocol

from quickthaw.snapshot import config
from quickthaw.snapshot.errors import FunctionExitedError, FunctionInitError


class Process(Protocol):
    """One function process, however it came to be.

    Units: `spawned_ns` is the monotonic clock just before it was asked for.
    """

    spawned_ns: int

    @property
    def pid(self) -> int:
        """As the host sees it."""
        ...

    def wait(self) -> int:
        """Block until it has ended; return its status, which is negative for a signal.

        0 too where nobody can say any more how it ended.
        """
        ...

    def kill(self) -> None:
        """SIGKILL; not waited for, and harmless when it has ended."""
        ...


class Engine(Protocol):
    """How function processes come to be.

    A context manager: at its end its captured process is gone. Clones are their instances'.
    """

    name: str

    def start(self, environ: Mapping[str, str], output: int, lifeline: int) -> Process:
        """Make one more. The descriptors are the caller's, to be closed afterwards.

        `environ` is the process's whole environment, AWS_LAMBDA_RUNTIME_API in it; `output` becomes its
        stdout and stderr, and `lifeline` it has to hold open. From any thread.
        Raises: FunctionError as the capture failed.
        """
        ...

    def stop(self) -> None:
        """End what was captured; from any thread, and more often than once."""
        ...

    def __enter__(self) -> "Engine": ...

    def __exit__(self, *exc_info: object) -> None: ...


def exited(status: int) -> FunctionExitedError:
    """As Lambda words the end of a process: a signal's name, or the exit status."""
    reason = f"signal: {(signal.strsignal(-status) or '').lower()}" if status < 0 else f"exit status {status}"
    how = f"with error: {reason}" if status else "without providing a reason"
    return FunctionExitedError("Runtime.ExitError", f"Runtime exited {how}")


def init_stopped_error() -> FunctionInitError:
    """The error of a function that was not captured, because its host ends."""
    return FunctionInitError("Sandbox.Stopped", "the host is being stopped")


def captured_environment(environ: Mapping[str, str], task_root: str | None) -> dict[str, str]:
    """The environment of a process that is to be captured, and of those made from it."""
    code = {} if task_root is None else {"LAMBDA_TASK_ROOT": task_root}
    return {**environ, **code, config.INITIALIZATION_TYPE: config.SNAP_START}


def say_nothing(line: str) -> None:
    """Where nobody listens."""
    del line
