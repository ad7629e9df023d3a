# SPDX-License-Identifier: Apache-2.0
"""How long each garbage collection stopped this process. Source: gc.callbacks."""

from __future__ import annotations

import gc
from time import monotonic_ns

_pauses_ns: list[int] = []
_begun_ns = 0


def watch() -> None:
    """From now on, once."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def take() -> list[int]:
    """The pauses since this was last asked. Units: nanoseconds."""
    global _pauses_ns
    taken, _pauses_ns = _pauses_ns, []
    return taken


def _on_collection(phase: str, _info: dict[str, int]) -> None:
    global _begun_ns
    if phase == "start":
        _begun_ns = monotonic_ns()
    else:
        _pauses_ns.append(monotonic_ns() - _begun_ns)
