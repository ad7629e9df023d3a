# SPDX-License-Identifier: Apache-2.0
"""How one function process was started, as Lambda says it: an argument and Lambda's own variables."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quickthaw.snapshot.errors import BootstrapError


class SnapshotConfig(NamedTuple):  # dataclasses would cost 7 ms of every start
    """What the bootstrap needs to know."""

    handler: str  # package.module.function
    runtime_api: str  # HOST:PORT
    task_root: str

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
        return cls(arguments[1], _runtime_api(environ), environ.get("LAMBDA_TASK_ROOT") or os.getcwd())


def _runtime_api(environ: Mapping[str, str]) -> str:
    address = environ.get("AWS_LAMBDA_RUNTIME_API", "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BootstrapError(
            f"AWS_LAMBDA_RUNTIME_API is {address!r}, expected HOST:PORT; "
            "run this in Lambda, under an emulator of it, or by `quickthaw invoke`"
        )
    return address
