# SPDX-License-Identifier: Apache-2.0
"""A function of a test's, started by an engine, and asked."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.engines.engine import Engine
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from quickthaw.snapshot.host.instance import Instance
from tests.criu import TemporaryCriuEngine, needs_criu

TIMEOUT_S = 60.0

MakeEngine = Callable[..., Engine]
CAPTURING = [
    pytest.param(ZygoteEngine, id="zygote"),
    pytest.param(TemporaryCriuEngine, id="criu", marks=needs_criu),
]
capturing = pytest.mark.parametrize("make_engine", CAPTURING)
every = pytest.mark.parametrize("make_engine", [pytest.param(ColdEngine, id="cold"), *CAPTURING])


class Function:
    """A process that is ready, and what it has printed."""

    def __init__(self, instance: Instance, output: list[str]) -> None:
        self.instance = instance
        self.output = output

    def ask(self, event: object = None) -> bytes:
        return b"".join(chunk.data for chunk in self.instance.invoke(json.dumps(event).encode(), TIMEOUT_S))

    def ask_json(self, event: object = None) -> Any:
        return json.loads(self.ask(event))


@contextmanager
def started(engine: Engine, **environ: str) -> Iterator[Function]:
    """One more process of an engine's."""
    output: list[str] = []
    with Instance(engine, {**os.environ, **environ}, output.append) as instance:
        instance.wait_ready(TIMEOUT_S)
        yield Function(instance, output)


@contextmanager
def engine_for(make_engine: MakeEngine, task_root: Path, source: str, **options: Any) -> Iterator[Engine]:
    """An engine for the function `handle` of `source`."""
    (task_root / "handler.py").write_text(source)
    with make_engine("handler.handle", str(task_root), **options) as engine:
        yield engine
