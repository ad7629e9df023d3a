# SPDX-License-Identifier: Apache-2.0
"""Runs a small function, written as text, in a process of its own."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.host.instance import Instance

TIMEOUT_S = 30.0


class Function:
    """A function process that is ready, and what it has printed."""

    def __init__(self, instance: Instance, output: list[str]) -> None:
        self.instance = instance
        self.output = output

    def ask(self, event: object, timeout_s: float = TIMEOUT_S) -> bytes:
        """Send an event; return the whole answer."""
        return b"".join(chunk.data for chunk in self.instance.invoke(json.dumps(event).encode(), timeout_s))

    def ask_json(self, event: object) -> Any:
        """Send an event; return the answer's JSON."""
        return json.loads(self.ask(event))


@contextmanager
def running(task_root: Path, source: str, **options: Any) -> Iterator[Function]:
    """Start `source` as handler.py of `task_root`, its function being `handle`."""
    (task_root / "handler.py").write_text(source)
    output: list[str] = []
    environ = {**os.environ, **options.pop("environ", {})}
    engine = ColdEngine("handler.handle", str(task_root), **options)
    with Instance(engine, environ, output.append) as instance:
        instance.wait_ready(TIMEOUT_S)
        yield Function(instance, output)
