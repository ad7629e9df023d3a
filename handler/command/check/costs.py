# SPDX-License-Identifier: Apache-2.0
"""What a deployment takes each month before anybody asks it anything: warmers, snapshots.

Prices are those that AWS listed for us-east-1 in 2025; another region, or another day, has others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quickthaw.handler.command.check.deployment import Deployment
from quickthaw.handler.events import is_ping
from quickthaw.handler.warming import read_ping

_GB_SECOND = {"x86_64": 0.0000166667, "arm64": 0.0000133334}
_REQUEST = 0.20 / 1_000_000
_SNAPSHOT_GB_SECOND = 0.0000015046  # of Python, while the version is there, for at least 3 hours
_RESTORED_GB = 0.0001397998
_MONTH_S = 365.25 * 86_400 / 12
_UNIT_S = {"minute": 60, "hour": 3_600, "day": 86_400}
_PING_S = 0.02  # of a ping, beside the time that it is held


def costs(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """What, and how much."""
    yield from _warmers(deployment)
    yield from _snapshots(deployment)


def _warmers(deployment: Deployment) -> Iterator[tuple[str, str]]:
    for rule in deployment.template.of_type("AWS::Events::Rule").values():
        period_s = _period_s(rule.get("ScheduleExpression", ""))
        for event in _pings(deployment, rule):
            ping = read_ping(event)
            what = f"{ping.n_environments} warm environments, {rule['ScheduleExpression']}"
            if period_s is None:
                yield what, "a cron expression: not worked out"
                continue
            n_invokes = _MONTH_S / period_s * ping.n_environments
            held_s = ping.hold_ms / 1000 + _PING_S
            gb_seconds = n_invokes * held_s * deployment.memory_mib / 1024
            dollars = gb_seconds * _GB_SECOND[_architecture(deployment)] + n_invokes * _REQUEST
            yield (
                what,
                f"about ${dollars:,.2f} a month: {n_invokes:,.0f} pings of {held_s:.2f} s on "
                f"{deployment.memory_mib} MB; each cold start among them adds its own time",
            )


def _pings(deployment: Deployment, rule: dict[str, Any]) -> list[dict[str, Any]]:
    events = [deployment.template.json(target.get("Input", "")) for target in rule.get("Targets", [])]
    return [event for event in events if is_ping(event)]


def _period_s(schedule: str) -> float | None:
    match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", schedule)
    return None if match is None else int(match[1]) * _UNIT_S[match[2]]


def _architecture(deployment: Deployment) -> str:
    return str(deployment.function.properties.get("Architectures", ["x86_64"])[0])


def _snapshots(deployment: Deployment) -> Iterator[tuple[str, str]]:
    if not deployment.has_snap_start:
        return
    gb = deployment.memory_mib / 1024
    yield (
        "SnapStart",
        f"about ${gb * _SNAPSHOT_GB_SECOND * _MONTH_S:,.2f} a month for each version that is kept, and "
        f"${gb * _RESTORED_GB * 1000:,.2f} for a thousand restores: delete versions that nobody calls",
    )
