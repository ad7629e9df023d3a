# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from quickthaw.handler.command.check.costs import costs
from tests.unit.handler.command.check.deployments import SNAP_START, deployment


def rule(
    schedule: str, event: str = '{"quickthaw": "warm", "n_environments": 5, "hold_ms": 180}'
) -> dict[str, Any]:
    target = {"Id": "live", "Arn": "F", "Input": event}
    properties = {"ScheduleExpression": schedule, "Targets": [target]}
    return {"R": {"Type": "AWS::Events::Rule", "Properties": properties}}


def test_what_warm_environments_cost() -> None:
    ((what, how_much),) = costs(deployment({"MemorySize": 1024}, rule("rate(5 minutes)")))
    assert what == "5 warm environments, rate(5 minutes)"
    # 8,766 times 5 pings of 0.2 s on 1 GB, at $16.67 for a million GB-seconds, $0.20 for a million requests
    assert how_much.startswith("about $0.15 a month: 43,830 pings of 0.20 s on 1024 MB")


def test_twice_as_often_is_twice_as_much() -> None:
    (_, hourly), (_, daily) = [
        next(iter(costs(deployment({}, rule(f"rate({schedule})"))))) for schedule in ("1 hour", "1 day")
    ]
    assert ("3,652 pings" in hourly, "152 pings" in daily) == (True, True)


def test_a_cron_expression_is_not_worked_out() -> None:
    ((_, how_much),) = costs(deployment({}, rule("cron(0 8 * * ? *)")))
    assert "not worked out" in how_much


@pytest.mark.parametrize("event", ["", "{}", '{"prompt": "?"}'])
def test_another_schedule_is_no_warmer(event: str) -> None:
    assert list(costs(deployment({}, rule("rate(5 minutes)", event)))) == []


def test_what_snapshots_cost() -> None:
    ((what, how_much),) = costs(deployment(SNAP_START | {"MemorySize": 1024}))
    assert what == "SnapStart"
    assert how_much.startswith("about $3.96 a month")
