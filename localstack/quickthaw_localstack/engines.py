# SPDX-License-Identifier: Apache-2.0
"""How the processes of each function version start: one engine for each, made when it is first needed.

LAMBDA_PROCESS_START=zygote, the default, captures a version once and forks it from then on; cold runs every
init. Either way it is quickthaw's host that starts the process, and the interpreter is LocalStack's own.
"""

import os
from threading import Lock

from localstack.services.lambda_.invocation.lambda_models import FunctionVersion

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.engines.engine import Engine
from quickthaw.snapshot.engines.zygote import ZygoteEngine

_KINDS = ("zygote", "cold")
_lock = Lock()
_engines: dict[str, Engine] = {}


def start_kind() -> str:
    """What LAMBDA_PROCESS_START says. Raises: ValueError."""
    kind = os.environ.get("LAMBDA_PROCESS_START") or "zygote"
    if kind not in _KINDS:
        raise ValueError(f"LAMBDA_PROCESS_START={kind!r}: expected {' or '.join(_KINDS)}")
    return kind


def engine_of(version: FunctionVersion) -> Engine:
    """The engine of a version; of another configuration or code it is another one."""
    with _lock:
        engine = _engines.get(_key(version))
        if engine is None:
            engine = _engines[_key(version)] = _make(version)
        return engine


def drop(version: FunctionVersion) -> None:
    """The version is no more: end what was captured of it."""
    with _lock:
        engine = _engines.pop(_key(version), None)
    if engine is not None:
        engine.stop()


def _key(version: FunctionVersion) -> str:
    return f"{version.qualified_arn} {version.config.revision_id}"


def _make(version: FunctionVersion) -> Engine:
    task_root = str(version.config.code.get_unzipped_code_location())
    kind = ZygoteEngine if start_kind() == "zygote" else ColdEngine
    return kind(version.config.handler, task_root)
