# SPDX-License-Identifier: Apache-2.0
"""One of a pool's instances: from its being asked for to its end, and what it works on."""

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from enum import Enum

from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.instance import Instance, State
from quickthaw.snapshot.host.log_tail import LogTail
from quickthaw.snapshot.host.process_memory import peak_mib

OnOutput = Callable[[str], object]
# Gets what the process prints, line by line, on a thread; and the loop that it is served on.
Spawn = Callable[[OnOutput, AbstractEventLoop], Instance]


class Activity(Enum):
    """What a worker does.

    STARTING: there is no process yet, or it runs its init. IDLE: it waits for an event. BUSY: it has one.
    """

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"


class Worker:
    """To be used on one event loop, but for `start` and `stop`, which block.

    Units: `idle_since_ns` is the monotonic clock.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.activity = Activity.STARTING
        self.instance: Instance | None = None
        self.start_ns = 0  # how long it took
        self.idle_since_ns = 0
        self.n_requests = 0
        self._log: LogTail | None = None

    def start(
        self, spawn: Spawn, loop: AbstractEventLoop, timeout_s: float, is_stopped: Callable[[], bool]
    ) -> None:
        """Make the process and wait until it is ready. Raises: FunctionError."""
        instance = self.instance = spawn(self._take_output, loop)
        if is_stopped():  # since it was asked for: whoever stopped the pool did not see this instance
            instance.kill()
        self.start_ns = instance.wait_ready(timeout_s) - instance.spawned_ns

    @property
    def is_alive(self) -> bool:
        """Whether it can answer."""
        return self.instance is not None and self.instance.state is State.READY

    @property
    def pid(self) -> int | None:
        """Its process."""
        return None if self.instance is None else self.instance.pid

    def run(self, invocation: AsyncInvocation, log: LogTail | None) -> None:
        """Send it an event. Raises: FunctionError when nobody is there to take it."""
        assert self.instance is not None
        self.activity = Activity.BUSY
        self.n_requests += 1
        if log is not None:
            log.begin(invocation.request_id)
            self._log = log
        self.instance.run(invocation)

    def rest(self) -> None:
        """It has nothing to do, from now on."""
        self.activity = Activity.IDLE
        self.idle_since_ns = time.monotonic_ns()

    def end(self, invocation: AsyncInvocation) -> None:
        """It is done with an invocation: complete the log of it."""
        log = self._log
        if log is None or self.instance is None:
            return
        self.instance.read_output()
        self._log = None
        init_ms = self.start_ns / 1e6 if self.n_requests == 1 else None
        log.end(invocation.request_id, invocation.elapsed_ms, peak_mib(self.instance.pid), init_ms)

    def kill(self) -> None:
        """End its process; what waits for it fails."""
        if self.instance is not None:
            self.instance.kill()

    def stop(self) -> None:
        """End its process and wait until it is gone. Blocks."""
        if self.instance is not None:
            self.instance.stop()

    def _take_output(self, line: str) -> None:
        log = self._log
        if log is not None:
            log.take(line)
