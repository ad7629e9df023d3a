# SPDX-License-Identifier: Apache-2.0
"""Whether the compiled engine takes the interpreter's place: measured here, on this machine and these shards.

Importing torch takes seconds and stalls whatever runs beside it, so this is asked before a capture and by a
ping, never by a request. Keys and values are the same to both engines: a conversation goes on from its own.
"""

from __future__ import annotations

from importlib.util import find_spec
from time import monotonic_ns
from typing import TYPE_CHECKING

from quickthaw.layers.cpu import usable_cpus
from quickthaw.layers.kv import KeyValueCache
from quickthaw.snapshot.config import is_to_be_captured
from quickthaw.snapshot.hooks import register_after_restore

if TYPE_CHECKING:
    from quickthaw.handler.config import HandlerConfig
    from quickthaw.handler.decoding import Engine
    from quickthaw.layers.shard_set import ShardSet

_N_TOKENS = 3  # the fastest of them counts


def compiled_engine(shards: ShardSet, config: HandlerConfig) -> Engine:
    """The engine that computes with torch: on one thread until it is restored, where it is to be captured.

    GNU OpenMP does not survive a fork once it has had threads.
    """
    from quickthaw.layers.compiled.engine import Compiled

    n_threads = config.layers.n_threads or usable_cpus()
    if not is_to_be_captured():
        return Compiled(shards, n_threads, config.layers.cache)
    engine = Compiled(shards, 1, config.layers.cache)
    register_after_restore(engine.spread, n_threads)
    return engine


def faster_engine(current: Engine, shards: ShardSet, config: HandlerConfig) -> Engine | None:
    """A compiled engine that needs less time for a token; None where there is none, or no torch.

    Raises: ShardError.
    """
    if find_spec("torch") is None:
        return None
    compiled = compiled_engine(shards, config)
    is_faster = _token_ns(compiled, shards) < _token_ns(current, shards)
    shards.spans.take()  # of no request
    return compiled if is_faster else None


def _token_ns(engine: Engine, shards: ShardSet) -> int:
    engine.before_layer = _go_on  # a deadline of the last request's may be there
    cache = KeyValueCache(shards.manifest.model)
    engine.forward([0, 0], cache)
    times_ns = []
    for _ in range(_N_TOKENS):
        begin_ns = monotonic_ns()
        engine.forward([0], cache)
        times_ns.append(monotonic_ns() - begin_ns)
    return min(times_ns)


def _go_on() -> None:
    pass
