# SPDX-License-Identifier: Apache-2.0
"""`quickthaw host`: one function behind an address, until it is interrupted."""

import argparse
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from quickthaw.handler.command.invoke import HANDLER
from quickthaw.handler.command.start_lines import start_line, timeline_line
from quickthaw.snapshot.config import WARMUP_EVENT
from quickthaw.snapshot.engines.engine import Engine
from quickthaw.snapshot.host.front import Front
from quickthaw.snapshot.host.host_application import HostApplication
from quickthaw.snapshot.host.hosted_function import REGION, HostedFunction
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.memory_limit import MemoryLimit, memory_limit
from quickthaw.snapshot.host.metrics import HostMetrics
from quickthaw.snapshot.host.pool import Pool, PoolLimits
from quickthaw.snapshot.host.worker import OnOutput, Spawn

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the command line said. `start` is an engine's name, "cold", "zygote" or "criu"."""

    function: HostedFunction
    limits: PoolLimits
    start: str
    port: int
    warmup_event: Path | None = None
    capture_dir: Path | None = None


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
    if arguments.capture_dir is not None and arguments.start != "criu":
        arguments.parser.error("--capture-dir: only --start criu captures to disk")
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
        arguments.capture_dir,
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
        engine = _make_engine(options, stack, say)
        limit = (
            None if function.memory_mib is None else stack.enter_context(memory_limit(function.memory_mib))
        )
        pool = Pool(
            _spawning(function, engine, environ, limit, say, on_log),
            options.limits,
            lambda worker, error: say(start_line(worker, error)),
            HostMetrics(engine.name),
        )
        front = stack.enter_context(Front(HostApplication(pool, function), options.port))
        say(f"{function.handler} on {front.url}")
        front.call(pool.warm())  # so that what cannot start says so now
        threading.Event().wait()


def _make_engine(options: HostOptions, stack: ExitStack, say: Say) -> Engine:
    """The engine that was asked for; only its own module is imported. It ends with `stack`."""
    function, timeout_s = options.function, options.limits.timeout_s
    if options.start == "zygote":
        from quickthaw.snapshot.engines.zygote import ZygoteEngine

        return stack.enter_context(
            ZygoteEngine(function.handler, function.task_root, timeout_s=timeout_s, say=say)
        )
    if options.start == "criu":
        from quickthaw.snapshot.engines.criu import CriuEngine

        directory = options.capture_dir or Path(stack.enter_context(TemporaryDirectory(prefix="quickthaw-")))
        return stack.enter_context(
            CriuEngine(function.handler, directory, function.task_root, timeout_s=timeout_s, say=say)
        )
    from quickthaw.snapshot.engines.cold import ColdEngine

    return stack.enter_context(ColdEngine(function.handler, function.task_root))


def _spawning(
    function: HostedFunction,
    engine: Engine,
    environ: Mapping[str, str],
    limit: MemoryLimit | None,
    say: Say,
    on_log: Say,
) -> Spawn:
    """What makes one more instance."""

    def spawn(on_output: OnOutput, loop: AbstractEventLoop) -> Instance:
        instance: Instance | None = None

        def take(line: str) -> None:
            on_log(line)
            on_output(line)
            if instance is not None and (timeline := timeline_line(line, instance)) is not None:
                say(timeline)

        instance = Instance(engine, function.environment(environ, engine.name), take, function.arn, loop)
        if limit is not None:
            limit.apply(instance)
        return instance

    return spawn
