# SPDX-License-Identifier: Apache-2.0
"""A line for each start of an instance, and one more where the function tells what it did in it."""

import json
from collections.abc import Iterator

from quickthaw.handler.command.invoke import is_own_line
from quickthaw.handler.timeline import Phase
from quickthaw.snapshot.errors import SnapshotError
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.worker import Worker


def start_line(worker: Worker, error: SnapshotError | None) -> str:
    """How an instance became ready, or did not."""
    instance = worker.instance
    if error is not None or instance is None:
        return f"start {worker.number}: failed, {error}"
    return (
        f"start {worker.number}: {instance.start_kind}, ready after {worker.start_ns / 1e6:.1f} ms, "
        f"process {instance.pid}"
    )


def timeline_line(log_line: str, instance: Instance) -> str | None:
    """What our own function's log says of its start; it is written after its first answer."""
    if not is_own_line(log_line):
        return None
    try:
        record = json.loads(log_line)
        if record["quickthaw"] != "start":
            return None
        phases = [Phase(**each) for each in record["phases"]]
    except (ValueError, KeyError, TypeError):
        return None  # a user's function may print what looks like ours
    steps = [f"{name} {elapsed_ns / 1e6:.1f}" for name, elapsed_ns in _steps(phases, instance.spawned_ns)]
    return f"process {instance.pid}, ms: {', '.join(steps)}"


def _steps(phases: list[Phase], spawned_ns: int) -> Iterator[tuple[str, int]]:
    """What follows each other, without what lies inside; the first step began when the process was made."""
    end_ns = spawned_ns
    for phase in phases:
        if phase.start_ns >= end_ns or end_ns == spawned_ns:
            yield phase.name, phase.end_ns - end_ns
            end_ns = phase.end_ns
