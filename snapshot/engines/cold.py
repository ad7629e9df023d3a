# SPDX-License-Identifier: Apache-2.0
"""A plain start: every process runs its own init. The baseline, and the only engine without a capture.

Requires: nothing.
On success: a process of its own group, whose working folder is the task root.
On failure: nothing is left; a failed init is reported by the process itself, to its Runtime API.
Refresh after restore: nothing is restored.
"""

import subprocess
import sys
import time
from collections.abc import Mapping

BOOTSTRAP = "quickthaw.snapshot.bootstrap"


class ColdEngine:
    """Runs `python -m bootstrap handler`, which may be awslambdaric's own."""

    name = "cold"

    def __init__(self, handler: str, task_root: str | None = None, bootstrap: str = BOOTSTRAP) -> None:
        self._handler = handler
        self._task_root = task_root
        self._bootstrap = bootstrap

    def __enter__(self) -> "ColdEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self, environ: Mapping[str, str], output: int, lifeline: int) -> "ColdProcess":
        """Spawn a process; it has its init before it."""
        return ColdProcess(
            command(self._handler, self._bootstrap), environ, self._task_root, output, (lifeline,)
        )

    def stop(self) -> None:
        """Nothing was captured."""


class ColdProcess:
    """A process that we spawned, and wait for."""

    def __init__(
        self,
        command: list[str],
        environ: Mapping[str, str],
        task_root: str | None,
        output: int,
        kept: tuple[int, ...],
    ) -> None:
        """`kept` are the descriptors that it inherits under their numbers."""
        if task_root is not None:
            environ = {**environ, "LAMBDA_TASK_ROOT": task_root}
        self.spawned_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            command,
            env=environ,
            cwd=task_root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=kept,
            process_group=0,  # a terminal's Ctrl-C is for the parent, which ends the function
        )

    @property
    def pid(self) -> int:
        """Of our own child, and not used again before it was waited for."""
        return self._process.pid

    def wait(self) -> int:
        """Block until it has ended."""
        return self._process.wait()

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()


def command(handler: str, bootstrap: str = BOOTSTRAP) -> list[str]:
    """What starts a function process that runs its own init."""
    # Ours says itself when the working directory may be searched; AWS's relies on Python's doing it.
    flags = ["-P"] if bootstrap == BOOTSTRAP else []
    return [sys.executable, *flags, "-m", bootstrap, handler]
