# SPDX-License-Identifier: Apache-2.0
"""Events that nobody waits for: accepted at once, then tried up to three times.

As on Lambda, a minute passes before the second try and two before the third, and a try that finds no
instance free does not count as one. Unlike there, events are kept in memory alone, none goes anywhere else
when it has failed for good, and what the host's end finds waiting is dropped. Every failure is logged.

Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html.
"""

import asyncio
import logging
from collections.abc import Sequence
from uuid import uuid4

from quickthaw.snapshot.errors import FunctionError, HostStoppedError, TooManyRequestsError
from quickthaw.snapshot.host.pool import Pool

_RETRY_AFTER_S = (60.0, 120.0)
_BUSY_RETRY_S = 1.0
_logger = logging.getLogger(__name__)


class BackgroundEvents:
    """Sends events to a pool, on its event loop."""

    def __init__(self, pool: Pool, retry_after_s: Sequence[float] = _RETRY_AFTER_S) -> None:
        self._pool = pool
        self._retry_after_s = retry_after_s
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, event: bytes, trace_id: str | None = None) -> str:
        """Take an event; return an id for it.

        Raises: TooManyRequestsError when as many wait as may.
        """
        if self._pool.is_full or len(self._tasks) >= self._pool.limits.max_waiting:
            raise TooManyRequestsError(self._pool.n_waiting)
        event_id = str(uuid4())
        task = asyncio.create_task(self._try(event, event_id, trace_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return event_id

    def stop(self) -> None:
        """Drop what is not done."""
        for task in self._tasks:
            task.cancel()

    async def _try(self, event: bytes, event_id: str, trace_id: str | None) -> None:
        for wait_s in (*self._retry_after_s, None):
            try:
                await self._run(event, trace_id)
                return
            except HostStoppedError:
                return
            except FunctionError as exc:
                what = "it is dropped" if wait_s is None else f"tried again in {wait_s:.0f} s"
                _logger.warning("event %s failed, %s: %s", event_id, what, exc)
            if wait_s is not None:
                await asyncio.sleep(wait_s)

    async def _run(self, event: bytes, trace_id: str | None) -> None:
        """Raises: FunctionError, HostStoppedError"""
        while True:
            try:
                invocation = await self._pool.invoke(event, trace_id)
                break
            except TooManyRequestsError:
                await asyncio.sleep(_BUSY_RETRY_S)
        async for _ in invocation:
            pass
