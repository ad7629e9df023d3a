# SPDX-License-Identifier: Apache-2.0
"""One process runs the init and is captured; every start is a fork of it.

Requires: Linux (pidfd); a function that runs no threads when its init is over, OpenBLAS's own excepted.
On success: a clone in a few milliseconds, with its own environment, output and lifeline, out of memory that
    it shares until it writes to it. The first start captures; what the init prints is in its output. While
    no start comes, the next clone waits for it, forked already.
On failure: a failed capture leaves nothing; the next start tries again. A zygote that has died is replaced
    by the next start; its clones live on. When what a capture depends on has changed, the next start captures
    anew.
Refresh after restore: `quickthaw.snapshot.hooks`, before the function's own hooks. Connections that the init
    made are closed in each clone; other files that it opened are shared with it.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping

from quickthaw.snapshot import fingerprint
from quickthaw.snapshot.engines.captured_process import CapturedProcess, Clone, ZygoteGoneError
from quickthaw.snapshot.engines.engine import captured_environment, init_stopped_error, say_nothing
from quickthaw.snapshot.errors import FunctionExitedError

_INIT_TIMEOUT_S = 60.0
_ATTEMPTS = 2  # a zygote may have died since it was last needed


class ZygoteEngine:
    """Captures with the first start, or when `capture` is called before.

    `say` gets a line for each capture, with what was the reason for another one.
    Units: `timeout_s` bounds a capture, which is the function's init.
    """

    name = "zygote"

    def __init__(
        self,
        handler: str,
        task_root: str | None = None,
        *,
        timeout_s: float = _INIT_TIMEOUT_S,
        say: Callable[[str], object] = say_nothing,
    ) -> None:
        self._handler = handler
        self._task_root = task_root
        self._timeout_s = timeout_s
        self._say = say
        self._lock = threading.Lock()
        self._zygote: CapturedProcess | None = None
        self._basis: fingerprint.Fingerprint = {}
        self._is_stopped = False

    def __enter__(self) -> "ZygoteEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The captured process; None while there is none."""
        return None if self._zygote is None else self._zygote.pid

    def start(self, environ: Mapping[str, str], output: int, lifeline: int) -> Clone:
        """Fork the captured process; capture one before if there is none, or it is out of date.

        Raises: FunctionError as the capture failed.
        """
        environ = captured_environment(environ, self._task_root)
        asked_ns = time.monotonic_ns()  # looking whether the capture is out of date is part of a start
        with self._lock:
            for _ in range(_ATTEMPTS):
                zygote = self._current(environ, output)
                try:
                    return zygote.fork(json.dumps(environ).encode(), output, lifeline, asked_ns)
                except ZygoteGoneError:
                    self._drop()
        raise FunctionExitedError("Runtime.ExitError", "the captured process ended as soon as it was forked")

    def stop(self) -> None:
        """End the captured process, also one that is still in its init."""
        self._is_stopped = True
        zygote = self._zygote
        if zygote is not None:
            zygote.kill()
        with self._lock:
            self._drop()

    def _current(self, environ: Mapping[str, str], output: int) -> CapturedProcess:
        basis = fingerprint.take(self._handler, self._task_root, environ)
        reasons = [] if self._zygote is None else fingerprint.differences(self._basis, basis)
        if self._zygote is not None and not self._zygote.is_alive:
            reasons = [f"process {self._zygote.pid} has ended"]
        if self._zygote is not None and not reasons:
            return self._zygote
        self._drop()
        if self._is_stopped:
            raise init_stopped_error()
        begin_ns = time.monotonic_ns()
        self._zygote = zygote = CapturedProcess(self._handler, environ, self._task_root, output)
        try:
            zygote.wait_captured(self._timeout_s)
        except BaseException:
            self._drop()
            raise
        self._basis = basis
        why = f" again, since {'; '.join(reasons)}" if reasons else ""
        elapsed_ms = (time.monotonic_ns() - begin_ns) / 1e6
        self._say(f"captured{why} in {elapsed_ms:.1f} ms, process {zygote.pid}")
        return zygote

    def _drop(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
