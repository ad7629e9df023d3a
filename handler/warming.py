# SPDX-License-Identifier: Apache-2.0
"""What a ping does: see to it that this environment has all it needs, stay a moment, say what was found.

All it needs is every shard in memory, and the compiled engine where that is faster.

    {"quickthaw": "warm",    ours; the scheduled events of EventBridge, and what serverless-plugin-warmup and
                             lambda-warmer send, mean the same
     "n_environments": 5,    so many are to be kept: the function asks itself for the others, asynchronously
     "hold_ms": 100,         how long this one stays occupied, so that the next ping reaches another
     "jitter_ms": 0,         how long to put off reading at most, at random: not all environments at once
     "until_ms": 1767…}      in the place of hold_ms, since 1970: when all that were asked together let go

    {"quickthaw": "warm", "instance_id", "start": "cold" or what restored it, "age_s", "n_pings", "engine",
     "mapped_bytes", "resident_bytes", "read_bytes": just now, "held_ms", "n_invoked", "fan_out_error"}

A request that comes meanwhile gets an environment of its own. So pings hold one briefly, and not one after
the other: those that have piled up are answered at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from quickthaw.handler import config
from quickthaw.handler.fields import Fields
from quickthaw.handler.stream import to_json
from quickthaw.snapshot import afterwards
from quickthaw.snapshot.marks import marks, start_kind

if TYPE_CHECKING:
    from quickthaw.handler.function import Context
    from quickthaw.handler.session import Session

ENVIRONMENTS_LIMIT = 100
HOLD_LIMIT_MS = 5_000
_HOLD_MS = 100
_INVOKE_MS = 10  # what one self-invoke takes, at most: they are made side by side
_INVOKERS = 16
_PILE_NS = 1_000_000_000  # a ping that comes so soon after another has waited in a queue for it
_MARGIN_MS = 1_000  # kept for the answer
_UPGRADE_MS = 10_000  # what importing torch, and packing weights for the first time, may take

Invoke = Callable[[str, bytes], None]  # a function's ARN, and the event for it

_logger = logging.getLogger(__name__)


class Ping(NamedTuple):
    """What a ping asks for."""

    n_environments: int = 1
    hold_ms: int = _HOLD_MS
    jitter_ms: int = 0
    until_ms: int | None = None


def read_ping(event: Mapping[str, Any]) -> Ping:
    """Other warmers' events say no more than that they are pings; lambda-warmer's, also for how many.

    Raises: FieldError, one of its kinds, for a bad value in one of ours.
    """
    if event.get("quickthaw") == "warm":
        fields = Fields(event)
        fields.take("quickthaw")
        ping = Ping(
            fields.integer("n_environments", 1, ENVIRONMENTS_LIMIT) or 1,
            _or(fields.integer("hold_ms", 0, HOLD_LIMIT_MS), _HOLD_MS),
            fields.integer("jitter_ms", 0, HOLD_LIMIT_MS) or 0,
            fields.integer("until_ms", 0),
        )
        fields.close()
        return ping
    concurrency = event.get("concurrency")
    is_first = event.get("__WARMER_INVOCATION__") in (None, 1)
    if is_first and type(concurrency) is int and concurrency > 1:
        return Ping(min(concurrency, ENVIRONMENTS_LIMIT))
    return Ping()


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class Warmer:
    """Answers the pings of one process; a restored one makes its own."""

    def __init__(self, session: Session, invoke: Invoke | None = None) -> None:
        self._session = session
        self._invoke = invoke
        self._instance_id = config.instance_name()
        self._born_ns = time.monotonic_ns()
        self._n_pings = 0
        self._let_go_ns: int | None = None  # when the last ping was answered

    def answer(self, event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Raises: FieldError for a bad ping; ShardError where this environment cannot answer requests."""
        ping = read_ping(event)
        self._n_pings += 1
        begin_ns = time.monotonic_ns()
        fan_out, until_ms = self._fan_out(ping, context)
        left_ms = context.get_remaining_time_in_millis
        if ping.jitter_ms:
            _sleep_ms(min(_random() * ping.jitter_ms, left_ms() - _MARGIN_MS))
        read_bytes = self._session.shards.read_ahead(
            config.memory_limit_bytes(), lambda: left_ms() > _MARGIN_MS
        )
        if left_ms() > _UPGRADE_MS:
            self._session.upgrade()
        if not self._is_piled_up(begin_ns):
            hold_ms = min(until_ms - _now_ms(), HOLD_LIMIT_MS)
            _sleep_ms(min(hold_ms, left_ms() - _MARGIN_MS))
        self._let_go_ns = time.monotonic_ns()
        found = {
            "quickthaw": "warm",
            **self._described(),
            "read_bytes": read_bytes,
            "held_ms": round((self._let_go_ns - begin_ns) / 1e6, 1),
            **fan_out,
        }
        if self._session.config.logs_requests:
            line = to_json({**found, "quickthaw": "ping", "request_id": context.aws_request_id})
            afterwards.defer(lambda: print(line, flush=True))
        return found

    def _described(self) -> dict[str, Any]:
        started = marks()
        start_ns = started[0][1] if started else self._born_ns
        return {
            "instance_id": self._instance_id,
            "start": start_kind(),
            "age_s": round((time.monotonic_ns() - start_ns) / 1e9, 1),
            "n_pings": self._n_pings,
            "engine": self._session.engine_name,
            "mapped_bytes": self._session.mapped_bytes,
            "resident_bytes": self._session.resident_bytes,
        }

    def _is_piled_up(self, begin_ns: int) -> bool:
        return self._let_go_ns is not None and begin_ns - self._let_go_ns < _PILE_NS

    def _fan_out(self, ping: Ping, context: Context) -> tuple[dict[str, Any], float]:
        """Ask for the other environments; what is told of that, and when all of them let go."""
        n_others = ping.n_environments - 1
        if n_others == 0:
            return {}, _now_ms() + ping.hold_ms if ping.until_ms is None else ping.until_ms
        try:
            arn: str = context.invoked_function_arn  # type: ignore[attr-defined]  # with the alias asked for
            invoke = self._invoke = self._invoke or _lambda_invoke()
        except Exception as exc:  # no boto3, no region: this environment is warm all the same
            return _told_of_others(0, n_others, exc), _now_ms() + ping.hold_ms
        until_ms = int(_now_ms() + ping.hold_ms + n_others * _INVOKE_MS)  # now that boto3 is imported
        other = {"quickthaw": "warm", "until_ms": until_ms, "jitter_ms": ping.jitter_ms or ping.hold_ms // 2}
        event = to_json(other).encode()
        n_invoked, error = _side_by_side(lambda: invoke(arn, event), n_others)
        return _told_of_others(n_invoked, n_others, error), until_ms


def _told_of_others(n_invoked: int, n_others: int, error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {"n_invoked": n_invoked}
    _logger.warning("a ping reached %d of %d other environments: %s", n_invoked, n_others, error)
    return {"n_invoked": n_invoked, "fan_out_error": f"{type(error).__name__}: {error}"}


def _lambda_invoke() -> Invoke:
    """By boto3, which AWS's Python runtimes and images have; half a second, which no request waits for."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    # Without retries: the next ping comes anyhow.
    options = Config(
        connect_timeout=2, read_timeout=2, retries={"max_attempts": 0}, max_pool_connections=_INVOKERS
    )
    client = boto3.client("lambda", config=options)

    def invoke(arn: str, event: bytes) -> None:
        client.invoke(FunctionName=arn, InvocationType="Event", Payload=event)

    return invoke


def _side_by_side(call: Callable[[], None], n_calls: int) -> tuple[int, BaseException | None]:
    """How many succeeded, and the first failure."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(n_calls, _INVOKERS)) as invokers:
        errors = [invoked.exception() for invoked in [invokers.submit(call) for _ in range(n_calls)]]
    failures = [error for error in errors if error is not None]
    return n_calls - len(failures), failures[0] if failures else None


def _random() -> float:
    """From 0 to 1, and another one in each clone of a process."""
    from random import SystemRandom

    return SystemRandom().random()


def _now_ms() -> float:
    return time.time() * 1000


def _sleep_ms(duration_ms: float) -> None:
    if duration_ms > 0:
        time.sleep(duration_ms / 1000)
