# SPDX-License-Identifier: Apache-2.0
"""One function process and its Runtime API: started, asked, killed at its deadline, noticed when it dies."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from quickthaw.snapshot.engines.engine import Engine, exited
from quickthaw.snapshot.host.invocation import Invocation
from quickthaw.snapshot.host.lifeline import Lifeline
from quickthaw.snapshot.host.output import Output
from quickthaw.snapshot.host.runtime_api import FUNCTION_ARN, RuntimeApi

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_OUTPUT_WAIT_S = 2.0
_AnyInvocation = TypeVar("_AnyInvocation", bound=Invocation)


class State(Enum):
    """What can be expected of an instance.

    STARTING: its process runs its init; left when it asks for an event, or fails.
    READY: it answers events, one after the other; left when it dies or is killed.
    DEAD: it has failed its init, died or been killed; never left.
    """

    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"


class Instance:
    """A function process. Use as a context manager: at the end of it the process is gone.

    It does not outlive this process either, however this one ends.

    Units: `spawned_ns` is the monotonic clock just before the process was asked for.
    """

    def __init__(
        self,
        engine: Engine,
        environ: Mapping[str, str],
        on_output: Callable[[str], object],
        function_arn: str = FUNCTION_ARN,
        loop: "AbstractEventLoop | None" = None,
    ) -> None:
        """Have `engine` start a process. `on_output` gets its output line by line, on a thread.

        With a `loop`, events are to be sent and answers awaited there; this is to be called elsewhere.

        Raises: FunctionError when there is nothing that could be started.
        """
        self.start_kind = engine.name
        self._api = RuntimeApi(function_arn, loop)
        self._lifeline = Lifeline()
        self._output = Output(on_output)
        try:
            self._process = engine.start(
                {**environ, "AWS_LAMBDA_RUNTIME_API": self._api.address},
                self._output.process_end,
                self._lifeline.process_end,
            )
        except BaseException:
            self._lifeline.abandon()
            os.close(self._output.process_end)
            self._end()
            raise
        os.close(self._output.process_end)
        self._lifeline.attach(self._process.pid)
        self.spawned_ns = self._process.spawned_ns
        # A thread of its own: a grandchild may keep the output open long after the process has ended.
        self._watcher = threading.Thread(target=self._watch, name="instance-exit", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The function's process."""
        return self._process.pid

    @property
    def state(self) -> State:
        """What can be expected of it now."""
        if self._api.has_failed:
            return State.DEAD
        return State.READY if self._api.is_ready else State.STARTING

    def __enter__(self) -> "Instance":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def wait_ready(self, timeout_s: float) -> int:
        """Wait until init is over; return when it was (monotonic clock, ns).

        Raises: FunctionInitError, FunctionExitedError
        """
        return self._api.wait_ready(timeout_s)

    def invoke(self, event: bytes, timeout_s: float) -> Invocation:
        """Send one event; iterate what is returned for the answer.

        Raises: FunctionError; at the deadline FunctionTimeoutError, and the process has been killed.
        """
        return self.run(Invocation(event, timeout_s))

    def run(self, invocation: _AnyInvocation) -> _AnyInvocation:
        """Send the event of an invocation. Raises: FunctionError when nobody is there to take it."""
        invocation.on_timeout = self.kill
        self._api.send(invocation)
        return invocation

    def read_output(self) -> None:
        """Pass on what the process has printed by now."""
        self._output.read_now()

    def kill(self) -> None:
        """End the process, and whatever waits for it; it is not waited for."""
        self._api.fail(exited(-signal.SIGKILL))
        self._process.kill()

    def stop(self) -> None:
        """Kill the process, read the rest of its output, stop serving it."""
        self._process.kill()
        self._watcher.join()
        self._end()

    def _end(self) -> None:
        self._lifeline.cut()
        self._output.join(_OUTPUT_WAIT_S)
        self._api.close()

    def _watch(self) -> None:
        self._api.fail(exited(self._process.wait()))
