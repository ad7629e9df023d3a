# SPDX-License-Identifier: Apache-2.0
"""The captured process is on disk; every start is brought back from there. It survives its host.

Requires: Linux, root, CRIU 4 or later, `unshare` and `setsid` (util-linux). A function that holds no locks on
    files and listens on no port when its init is over.
On success: a process in a pid namespace of its own, a child of ours, with its own environment, output and
    lifeline. Other hosts may use the same directory, now and later, also after a reboot: its monotonic clock
    goes on from the capture. The first start captures, where there is no capture of just this function; what
    the init prints is in its output.
On failure: a failed capture leaves none, and the next start tries again. A capture that is out of date, or
    that CRIU cannot restore, is replaced, and `say` hears why.
Refresh after restore: `quickthaw.snapshot.hooks`, before the function's own hooks. A clone has the process id
    of its siblings. Connections that the init made are found closed. Credentials are blank to the init, so
    that they are not on disk.
"""

import errno
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from quickthaw.snapshot import config, fingerprint
from quickthaw.snapshot.engines.capture_directory import Capture, CaptureDirectory
from quickthaw.snapshot.engines.cold import command
from quickthaw.snapshot.engines.criu_command import CriuCommand
from quickthaw.snapshot.engines.engine import (
    captured_environment,
    exited,
    init_stopped_error,
    say_nothing,
)
from quickthaw.snapshot.engines.restored_process import RestoredProcess, as_subprocess_has_it, children
from quickthaw.snapshot.errors import (
    CaptureMissingError,
    CaptureStaleError,
    CriuFailedError,
)
from quickthaw.snapshot.host.invocation import init_timeout_error
from quickthaw.snapshot.host.lifeline import Lifeline
from quickthaw.snapshot.host.runtime_api import RuntimeApi

# Empty to the init. The gate hands a restored process those of its own start.
BLANKED = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "QUICKTHAW_API_KEYS",
)
# sh's own standard error is not the function's: it would say there which signal ended it.
_INIT = (
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "setsid",
    "sh",
    "-c",
    '(exec "$@" 2>&1); exit $?',
    "sh",
)
_INIT_TIMEOUT_S = 60.0
_POLL_S = 0.005


class CriuEngine:
    """Restores what `directory` holds; captures before, where that is not what would be started now.

    `say` gets a line for each capture, with what was the reason for another one.
    Units: `timeout_s` bounds a capture, which is the function's init.
    Raises: CriuMissingError, CriuNotPermittedError
    """

    name = "criu"

    def __init__(
        self,
        handler: str,
        directory: Path,
        task_root: str | None = None,
        *,
        timeout_s: float = _INIT_TIMEOUT_S,
        say: Callable[[str], object] = say_nothing,
    ) -> None:
        self._handler = handler
        self._criu = CriuCommand()
        self._directory = CaptureDirectory(directory)
        self._task_root = task_root
        self._timeout_s = timeout_s
        self._say = say
        self._lock = threading.Lock()
        self._n_captures = 0
        self._is_stopped = False
        self._init: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "CriuEngine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self, environ: Mapping[str, str], output: int, lifeline: int) -> RestoredProcess:
        """Restore what was captured; capture before, if there is nothing, or it is out of date.

        Raises: FunctionError as the capture failed; CriuFailedError, CaptureDirectoryError.
        """
        environ = captured_environment(environ, self._task_root)
        n_captures = self._n_captures
        try:
            return self._restore(environ, output, lifeline)
        except CaptureMissingError:
            why = ""
        except CaptureStaleError as exc:
            why = f" again, since {'; '.join(exc.changes)}"
        except CriuFailedError as exc:
            why = f" again, since {exc}"
        with self._lock:
            if self._n_captures == n_captures:  # or somebody else has, meanwhile
                self._capture(environ, output, why)
        return self._restore(environ, output, lifeline)

    def capture(self, environ: Mapping[str, str], output: int) -> None:
        """Capture, whatever is there. `environ` and `output` as for `start`, and it raises the same."""
        with self._lock:
            self._capture(captured_environment(environ, self._task_root), output)

    def stop(self) -> None:
        """End a capture that is under way. What is on disk stays."""
        self._is_stopped = True
        init = self._init
        if init is not None:
            init.kill()

    def _restore(self, environ: Mapping[str, str], output: int, lifeline: int) -> RestoredProcess:
        spawned_ns = time.monotonic_ns()
        with self._directory.in_use():
            capture = self._directory.read()
            changes = fingerprint.differences(capture.fingerprint, self._basis(environ))
            if changes:
                raise CaptureStaleError(self._directory.path, changes)
            gate, host_end = os.pipe()
            try:
                inherited = {capture.output: output, capture.lifeline: lifeline, capture.gate: gate}
                process = RestoredProcess(self._criu.restore(self._directory.images, inherited), spawned_ns)
            except BaseException:
                os.close(host_end)
                raise
            finally:
                os.close(gate)
        with suppress(BrokenPipeError), open(host_end, "wb") as document:  # unless it has ended again
            document.write(json.dumps({"environ": environ, "output": None}).encode())
        return process

    def _capture(self, environ: Mapping[str, str], output: int, why: str = "") -> None:
        self._criu.check()
        begin_ns = time.monotonic_ns()
        basis = self._basis(environ)
        with self._directory.replacing():
            lifeline = Lifeline()
            capture = Capture(
                self._handler,
                self._task_root,
                datetime.now(UTC).isoformat(timespec="seconds"),
                self._criu.version,
                _pipe_name(output),
                _pipe_name(lifeline.process_end),
                str(self._directory.gate).removeprefix("/"),
                basis,
            )
            try:
                self._init_and_dump(environ, output, lifeline)
            finally:
                lifeline.cut()
                self._directory.gate.unlink(missing_ok=True)
            self._directory.write(capture)
        self._n_captures += 1
        elapsed_ms = (time.monotonic_ns() - begin_ns) / 1e6
        size_mb = self._directory.size_bytes() / 1e6
        self._say(f"captured{why} in {elapsed_ms:.1f} ms, {size_mb:.1f} MB in {self._directory.path}")

    def _init_and_dump(self, environ: Mapping[str, str], output: int, lifeline: Lifeline) -> None:
        """Start a process, wait until it is where it can be captured, and dump it."""
        os.mkfifo(self._directory.gate, 0o600)
        with (
            closing(RuntimeApi()) as api,  # which hears what goes wrong
            self._initialising(environ, api.address, output, lifeline) as init,
        ):
            # Open until it was dumped: so it holds a descriptor, in whose place a clone gets one of its own.
            gate = self._wait_at_gate(init, api)
            try:
                self._criu.dump(children(init.pid)[0], self._directory.images)
            finally:
                os.close(gate)

    @contextmanager
    def _initialising(
        self, environ: Mapping[str, str], runtime_api: str, output: int, lifeline: Lifeline
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A process that runs its init, and is gone afterwards."""
        environ = {name: "" if name in BLANKED else value for name, value in environ.items()}
        environ["AWS_LAMBDA_RUNTIME_API"] = runtime_api
        environ[config.RESTORE_GATE] = f"fifo:{self._directory.gate}"
        try:
            init = subprocess.Popen(
                [*_INIT, *command(self._handler)],
                env=environ,
                cwd=self._task_root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                pass_fds=(lifeline.process_end,),
                process_group=0,
            )
        except BaseException:
            lifeline.abandon()
            raise
        lifeline.attach(init.pid)
        self._init = init
        try:
            yield init
        finally:
            init.kill()
            init.wait()
            self._init = None

    def _wait_at_gate(self, init: "subprocess.Popen[bytes]", api: RuntimeApi) -> int:
        """Wait until the init is over; return the host's end of the gate.

        Raises: FunctionInitError, FunctionExitedError
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return os.open(self._directory.gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as exc:
                if exc.errno != errno.ENXIO:  # nobody reads from it yet
                    raise
            if self._is_stopped:
                raise init_stopped_error()
            status = init.poll()
            if status is not None:
                api.fail(exited(as_subprocess_has_it(status)))
                assert api.failure is not None
                raise api.failure
            if time.monotonic() > deadline:
                raise init_timeout_error(self._timeout_s)
            time.sleep(_POLL_S)

    def _basis(self, environ: Mapping[str, str]) -> fingerprint.Fingerprint:
        return fingerprint.take(self._handler, self._task_root, environ)


def _pipe_name(descriptor: int) -> str:
    """As CRIU calls it."""
    return f"pipe:[{os.fstat(descriptor).st_ino}]"
