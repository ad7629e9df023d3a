# SPDX-License-Identifier: Apache-2.0
"""`quickthaw snapshot`: a process put on disk by CRIU, looked at there, brought back."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from quickthaw.handler.command.hosting import HostOptions, serve
from quickthaw.snapshot import fingerprint
from quickthaw.snapshot.config import WARMUP_EVENT
from quickthaw.snapshot.engines.capture_directory import Capture, CaptureDirectory
from quickthaw.snapshot.engines.criu import CriuEngine
from quickthaw.snapshot.errors import CaptureStaleError
from quickthaw.snapshot.host.hosted_function import HostedFunction
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.output import Output
from quickthaw.snapshot.host.pool import PoolLimits

Say = Callable[[str], object]

_OUTPUT_WAIT_S = 2.0


def capture(
    directory: Path,
    handler: str,
    task_root: Path | None,
    warmup_event: Path | None,
    environ: Mapping[str, str],
    timeout_s: float,
    say: Say,
    on_log: Say,
) -> None:
    """Run the function's init and put it on disk; `on_log` gets what it prints.

    Raises: CriuError, CaptureDirectoryError; FunctionError as the init failed.
    """
    if warmup_event is not None:
        environ = {**environ, WARMUP_EVENT: str(warmup_event.resolve())}
    function = HostedFunction(handler, task_root=str((task_root or Path.cwd()).resolve()))
    output = Output(on_log)
    try:
        with CriuEngine(handler, directory, function.task_root, timeout_s=timeout_s, say=say) as engine:
            engine.capture(function.environment(environ, engine.name), output.process_end)
    finally:
        os.close(output.process_end)
        output.join(_OUTPUT_WAIT_S)


def host(
    directory: Path, port: int, environ: Mapping[str, str], timeout_s: float, say: Say, on_log: Say
) -> None:
    """Serve what is in `directory`; returns only by an interrupt.

    Raises: CriuError, CaptureError, HostError; FunctionError when the function does not start.
    """
    captured = _read(directory)
    function = HostedFunction(captured.handler, task_root=captured.task_root)
    limits = PoolLimits(timeout_s, min_warm=1)
    options = HostOptions(function, limits, "criu", port, capture_dir=directory)
    serve(options, _as_captured(captured, environ), say, on_log)


def answer(
    directory: Path, event: object, environ: Mapping[str, str], timeout_s: float, say: Say, on_log: Say
) -> Iterator[bytes]:
    """Restore one process and have it answer `event`: yields the answer piece by piece, as it comes.

    Raises: CriuError, CaptureError; FunctionError as the function failed.
    """
    captured = _read(directory)
    function = HostedFunction(captured.handler, task_root=captured.task_root)
    engine = CriuEngine(captured.handler, directory, captured.task_root, timeout_s=timeout_s, say=say)
    environ = function.environment(_as_captured(captured, environ), engine.name)
    with engine, Instance(engine, environ, on_log) as instance:
        ready_ms = (instance.wait_ready(timeout_s) - instance.spawned_ns) / 1e6
        say(f"restored, ready after {ready_ms:.1f} ms, process {instance.pid}")
        for chunk in instance.invoke(json.dumps(event).encode(), timeout_s):
            yield chunk.data


def describe(directory: Path) -> str:
    """What was captured, when, by what. Raises: CaptureMissingError."""
    captured = _read(directory)
    basis = captured.fingerprint
    interpreter = basis["interpreter"]
    lines = [
        f"{captured.handler} of {captured.task_root}, {CaptureDirectory(directory).size_bytes():,} bytes",
        f"captured at {captured.captured_at} by CRIU {captured.criu_version}",
        f"Python {interpreter['version'].split()[0]}, {interpreter['executable']}; "
        f"{len(basis['packages'])} packages, {len(basis['code'])} files of code",
        *(f"{name}={value}" for name, value in sorted(basis["configuration"].items())),
    ]
    return "\n".join(lines)


def check_is_current(directory: Path, environ: Mapping[str, str]) -> None:
    """Raises: CaptureStaleError when a restore would capture anew."""
    captured = _read(directory)
    now = fingerprint.take(captured.handler, captured.task_root, _as_captured(captured, environ))
    changes = fingerprint.differences(captured.fingerprint, now)
    if changes:
        raise CaptureStaleError(directory, changes)


def _read(directory: Path) -> Capture:
    captures = CaptureDirectory(directory)
    with captures.in_use():
        return captures.read()


def _as_captured(captured: Capture, environ: Mapping[str, str]) -> dict[str, str]:
    """The configuration that it was captured with, unless it is said anew."""
    return {**captured.fingerprint["configuration"], **environ}
