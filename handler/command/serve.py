# SPDX-License-Identifier: Apache-2.0
"""`quickthaw serve`: one process that answers many requests at once, until it is told to end."""

import argparse
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.errors import DeviceError
from quickthaw.handler.function import Function
from quickthaw.handler.serving.batched_session import BatchedSession
from quickthaw.handler.serving.callers import AfterAnswers, Callers
from quickthaw.handler.timeline import Timeline
from quickthaw.layers.batch import BatchLimits
from quickthaw.snapshot import streaming
from quickthaw.snapshot.host.front import Front


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line said."""

    limits: BatchLimits
    timeout_s: float
    port: int
    address: str


def read_options(arguments: argparse.Namespace) -> ServeOptions:
    """Raises: DeviceError."""
    if arguments.device != "cpu":
        raise DeviceError(arguments.device)
    limits = BatchLimits(arguments.max_batch, arguments.max_waiting, arguments.max_wait_ms / 1000)
    return ServeOptions(limits, arguments.timeout, arguments.port, arguments.address)


def serve(options: ServeOptions, config: HandlerConfig, say: Callable[[str], object]) -> None:
    """Answer requests; returns only by an interrupt, and then those that were begun are answered.

    Raises: ManifestError, ShardError, HostError.
    """
    timeline = Timeline()
    streaming.enable()
    session = BatchedSession.open(config)
    timeline.mark("init")
    after = AfterAnswers()
    limits = options.limits
    with ExitStack() as stack:
        stack.enter_context(session.computing(limits))
        function = Function(session, timeline, after.defer)
        callers = Callers(function, after, limits.max_batch + limits.max_waiting, options.timeout_s)
        front = Front(callers, options.port, options.address, drain_s=options.timeout_s)
        stack.enter_context(front)
        say(f"{session.model_name} on {front.url}")
        threading.Event().wait()
