# SPDX-License-Identifier: Apache-2.0
"""CRIU for tests: whether it can be used here, and an engine with a directory that goes with it."""

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from quickthaw.snapshot.engines.criu import CriuEngine
from quickthaw.snapshot.engines.criu_command import CriuCommand
from quickthaw.snapshot.errors import CriuError


@cache
def _why_not() -> str:
    if sys.platform != "linux":
        return "only Linux has CRIU"
    try:
        CriuCommand().check()
    except CriuError as exc:
        return str(exc)
    return ""


needs_criu = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


class TemporaryCriuEngine(CriuEngine):
    """To be made like every other engine."""

    def __init__(self, handler: str, task_root: str | None = None, **options: Any) -> None:
        self._temporary = TemporaryDirectory()
        super().__init__(handler, Path(self._temporary.name), task_root, **options)

    def stop(self) -> None:
        super().stop()
        self._temporary.cleanup()
