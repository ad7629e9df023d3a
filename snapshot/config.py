# SPDX-License-Identifier: Apache-2.0
"""How one function process was started, as Lambda says it: an argument and Lambda's own variables.

Two variables of ours are said to the bootstrap alone. It takes them out of the environment, so that they mean
nothing to the function:

    QUICKTHAW_RESTORE_GATE  where an initialised process waits to be restored; its engine sets it (gate.py)
    QUICKTHAW_WARMUP_EVENT  a file with an event, JSON, that the function answers before it is captured
"""

import os
from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple

from quickthaw.snapshot.errors import BootstrapError

INITIALIZATION_TYPE = "AWS_LAMBDA_INITIALIZATION_TYPE"
SNAP_START = "snap-start"
RESTORE_GATE = "QUICKTHAW_RESTORE_GATE"
WARMUP_EVENT = "QUICKTHAW_WARMUP_EVENT"


class SnapshotConfig(NamedTuple):  # dataclasses would cost 7 ms of every start
    """What the bootstrap needs to know."""

    handler: str  # package.module.function
    runtime_api: str  # HOST:PORT
    task_root: str
    is_captured: bool = False  # the process is there to be captured, and waits for that after its init
    restore_gate: str | None = None  # None: as on AWS, the Runtime API says when it was restored
    warmup_event: str | None = None  # a file's path

    @classmethod
    def from_process(cls, arguments: Sequence[str], environ: Mapping[str, str]) -> "SnapshotConfig":
        """Read the command line (`arguments[0]` is the program) and the environment.

        Raises: BootstrapError naming what is missing.
        """
        if len(arguments) != 2:
            raise BootstrapError(
                f"expected one argument, package.module.function, found {len(arguments) - 1}"
            )
        if "AWS_LAMBDA_MAX_CONCURRENCY" in environ:
            raise BootstrapError(
                "AWS_LAMBDA_MAX_CONCURRENCY is set, but one process serves one request at a time here; "
                "use `python -m awslambdaric`"
            )
        return cls(
            arguments[1],
            runtime_api(environ),
            environ.get("LAMBDA_TASK_ROOT") or os.getcwd(),
            is_to_be_captured(environ),
            environ.get(RESTORE_GATE),
            environ.get(WARMUP_EVENT),
        )


def is_to_be_captured(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process was started to be captured, by SnapStart or one of our engines."""
    environ = os.environ if environ is None else environ
    return environ.get(INITIALIZATION_TYPE) == SNAP_START


def runtime_api(environ: Mapping[str, str] | None = None) -> str:
    """HOST:PORT of the Runtime API; a restored process has another one. Raises: BootstrapError."""
    environ = os.environ if environ is None else environ
    address = environ.get("AWS_LAMBDA_RUNTIME_API", "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BootstrapError(
            f"AWS_LAMBDA_RUNTIME_API is {address!r}, expected HOST:PORT; "
            "run this in Lambda, under an emulator of it, or by `quickthaw invoke`"
        )
    return address


def prepare(environ: MutableMapping[str, str]) -> None:
    """Make `environ` what the function is to see: without what was said to the bootstrap.

    With one BLAS thread, unless it says otherwise: the interpreter brings its own, OpenBLAS's would spin
    against them.
    """
    for name in (RESTORE_GATE, WARMUP_EVENT):
        environ.pop(name, None)
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def replace_environment(environ: Mapping[str, str]) -> None:
    """A restored process has another environment than the captured one; nothing of that is left.

    Only what differs is touched: a variable costs 10 µs.
    """
    new = dict(environ)
    prepare(new)
    for name in os.environ.keys() - new.keys():
        del os.environ[name]
    for name, value in new.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
