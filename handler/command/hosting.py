# SPDX-License-Identifier: Apache-2.0
"""`quickthaw host`: one function behind an address, until it is interrupted."""

import argparse
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from quickthaw.handler.command.invoke import HANDLER
from quickthaw.snapshot.config import WARMUP_EVENT
from quickthaw.snapshot.engines.engine import Engine
from quickthaw.snapshot.errors import SnapshotError
from quickthaw.snapshot.host.front import Front
from quickthaw.snapshot.host.hosted_function import REGION, HostedFunction
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.memory_limit import MemoryLimit, memory_limit
from quickthaw.snapshot.host.metrics import HostMetrics
from quickthaw.snapshot.host.pool import Pool, PoolLimits
from quickthaw.snapshot.host.worker import OnOutput, Worker

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the command line said. `start` is an engine's name, "cold", "zygote" or "criu"."""

    function: HostedFunction
    limits: PoolLimits
    start: str
    port: int
    warmup_event: Path | None = None


def read_options(arguments: argparse.Namespace, environ: Mapping[str, str]) -> HostOptions:
    """What the command line asks for. A wrong combination ends the command."""
    handler = arguments.handler or HANDLER
    max_instances = arguments.max_instances or (1 if handler == HANDLER else os.cpu_count() or 1)
    if arguments.min_warm > max_instances:
        arguments.parser.error(
            f"--min-warm {arguments.min_warm}: there are {max_instances} instances at most"
        )
    if arguments.warmup_event is not None and arguments.start == "cold":
        arguments.parser.error("--warmup-event: nothing is captured under --start cold; choose another start")
    task_root = arguments.task_root
    return HostOptions(
        HostedFunction(
            handler,
            arguments.name,
            environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION,
            task_root=None if task_root is None else str(task_root.resolve()),
            memory_mib=arguments.memory_mib,
        ),
        PoolLimits(
            arguments.timeout,
            max_instances,
            arguments.min_warm,
            arguments.idle_timeout,
            arguments.max_waiting,
        ),
        arguments.start,
        arguments.port,
        arguments.warmup_event,
    )


def serve(options: HostOptions, environ: Mapping[str, str], say: Say, on_log: Say) -> None:
    """Host a function; returns only by an interrupt, and then the function has ended.

    `say` gets the address, and a line for each start; `on_log` what the function prints.
    Raises: FunctionError when the function does not start; HostError.
    """
    function = options.function
    if options.warmup_event is not None:
        environ = {**environ, WARMUP_EVENT: str(options.warmup_event.resolve())}
    with ExitStack() as stack:
        engine = stack.enter_context(_make_engine(options, say))
        limit = (
            None if function.memory_mib is None else stack.enter_context(memory_limit(function.memory_mib))
        )
        pool = Pool(
            _spawning(function, engine, environ, limit, on_log),
            options.limits,
            lambda worker, error: say(_start_line(worker, error)),
            HostMetrics(engine.name),
        )
        front = stack.enter_context(Front(pool, function, options.port))
        say(f"{function.handler} on {front.url}")
        front.warm()  # so that what cannot start says so now
        threading.Event().wait()


def _make_engine(options: HostOptions, say: Say) -> Engine:
    """The engine that was asked for; only its own module is imported."""
    function = options.function
    if options.start == "zygote":
        from quickthaw.snapshot.engines.zygote import ZygoteEngine

        return ZygoteEngine(function.handler, function.task_root, timeout_s=options.limits.timeout_s, say=say)
    from quickthaw.snapshot.engines.cold import ColdEngine

    return ColdEngine(function.handler, function.task_root)


def _spawning(
    function: HostedFunction,
    engine: Engine,
    environ: Mapping[str, str],
    limit: MemoryLimit | None,
    on_log: Say,
) -> Callable[[OnOutput], Instance]:
    """What makes one more instance."""

    def spawn(on_output: OnOutput) -> Instance:
        def take(line: str) -> None:
            on_log(line)
            on_output(line)

        instance = Instance(engine, function.environment(environ, engine.name), take, function.arn)
        if limit is not None:
            limit.apply(instance)
        return instance

    return spawn


def _start_line(worker: Worker, error: SnapshotError | None) -> str:
    if error is not None or worker.instance is None:
        return f"start {worker.number}: failed, {error}"
    instance = worker.instance
    ready_ms = (worker.ready_ns - instance.spawned_ns) / 1e6
    return (
        f"start {worker.number}: {instance.start_kind}, ready after {ready_ms:.1f} ms, process {instance.pid}"
    )
