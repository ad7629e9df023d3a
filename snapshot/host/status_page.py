# SPDX-License-Identifier: Apache-2.0
"""What the host says of itself: JSON at /_quickthaw/, text for Prometheus at /_quickthaw/metrics.

The function's own routes are on the same port: /metrics is the function's.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from quickthaw.snapshot import prometheus_text
from quickthaw.snapshot.host.asgi import Message, Receive, Send, send_whole
from quickthaw.snapshot.host.hosted_function import HostedFunction
from quickthaw.snapshot.host.http_answer import Head
from quickthaw.snapshot.host.metrics import Histogram
from quickthaw.snapshot.host.pool import Pool
from quickthaw.snapshot.host.process_memory import anonymous_bytes, resident_bytes_by_file
from quickthaw.snapshot.host.worker import Activity, Worker

PREFIX = "/_quickthaw/"
_FAMILY = "quickthaw_host_"
_SHARD_SUFFIX = ".safetensors"


class StatusPage:
    """Answers what lies under PREFIX."""

    def __init__(self, pool: Pool, function: HostedFunction) -> None:
        self._pool = pool
        self._function = function

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        del receive
        path = scope["path"].removeprefix(PREFIX)
        if scope["method"] not in ("GET", "HEAD") or path not in ("", "metrics"):
            await send_whole(
                send, Head(404, [("content-type", "application/json")]), b'{"error":"not found"}'
            )
        elif path:
            await send_whole(
                send, Head(200, [("content-type", prometheus_text.CONTENT_TYPE)]), self.text().encode()
            )
        else:
            document = json.dumps(self.document(), indent=1).encode() + b"\n"
            await send_whole(send, Head(200, [("content-type", "application/json")]), document)

    def document(self) -> dict[str, object]:
        """Everything, as JSON has it."""
        pool, metrics = self._pool, self._pool.metrics
        return {
            "function": {"name": self._function.name, "handler": self._function.handler},
            "start": metrics.start_kind,
            "instances": [_instance(worker) for worker in pool.workers],
            "waiting": pool.n_waiting,
            "limits": {name: getattr(pool.limits, name) for name in pool.limits.__slots__},
            "starts": {**metrics.n_starts, "seconds": _document(metrics.start)},
            "requests": {**metrics.n_requests, "seconds": _document(metrics.request)},
        }

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        return "".join(line + "\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        pool, metrics = self._pool, self._pool.metrics
        kind = f'start="{metrics.start_kind}"'
        activities = Counter(worker.activity for worker in pool.workers)
        yield from _numbers(
            "instances",
            "gauge",
            "Function processes, by what they do.",
            {f'state="{activity.value}"': activities[activity] for activity in Activity},
        )
        yield from _numbers("waiting_requests", "gauge", "Requests in the queue.", {"": pool.n_waiting})
        yield from _numbers(
            "starts_total",
            "counter",
            "Starts of a function process.",
            {f'{kind},result="{result}"': n for result, n in metrics.n_starts.items()},
        )
        yield from _histogram("start_seconds", "From making a process to its readiness.", kind, metrics.start)
        yield from _numbers(
            "requests_total",
            "counter",
            "Requests, by what became of them.",
            {f'outcome="{outcome}"': n for outcome, n in metrics.n_requests.items()},
        )
        yield from _histogram(
            "request_seconds",
            "From a request to the end of its answer, its wait included.",
            "",
            metrics.request,
        )
        yield from _numbers(
            "anonymous_bytes",
            "gauge",
            "Memory of each process that no file stands behind.",
            {f'pid="{pid}"': n for pid in _pids(pool) if (n := anonymous_bytes(pid)) is not None},
        )
        yield from _numbers(
            "shard_resident_bytes",
            "gauge",
            "Mapped shards that are in a process's memory.",
            {f'pid="{pid}"': sum(_shards(pid).values()) for pid in _pids(pool)},
        )


def _instance(worker: Worker) -> dict[str, object]:
    now_ns = time.monotonic_ns()
    about: dict[str, object] = {
        "number": worker.number,
        "pid": worker.pid,
        "state": worker.activity.value,
        "requests": worker.n_requests,
    }
    if worker.start_ns:
        about["ready_after_ms"] = round(worker.start_ns / 1e6, 3)
    if worker.activity is Activity.IDLE:
        about["idle_s"] = round((now_ns - worker.idle_since_ns) / 1e9, 3)
    if worker.pid is not None:
        about["anonymous_bytes"] = anonymous_bytes(worker.pid)
        about["shards"] = _shards(worker.pid)
    return about


def _pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool.workers if worker.pid is not None]


def _shards(pid: int) -> dict[str, int]:
    """How much of each file of weights is in a process's memory."""
    return resident_bytes_by_file(pid, _SHARD_SUFFIX)


def _document(histogram: Histogram) -> dict[str, object]:
    limits = [*map(str, histogram.limits_s), "+Inf"]
    return {
        "sum": round(histogram.total_s, 6),
        "buckets": dict(zip(limits, accumulate(histogram.counts), strict=True)),
    }


def _numbers(name: str, kind: str, help_text: str, numbers: Mapping[str, float]) -> Iterator[str]:
    yield from prometheus_text.head(_FAMILY + name, kind, help_text)
    for labels, number in numbers.items():
        yield prometheus_text.value(_FAMILY + name, labels, number)


def _histogram(name: str, help_text: str, labels: str, histogram: Histogram) -> Iterator[str]:
    yield from prometheus_text.head(_FAMILY + name, "histogram", help_text)
    yield from prometheus_text.histogram(
        _FAMILY + name, labels, histogram.limits_s, histogram.counts, histogram.total_s
    )
