# SPDX-License-Identifier: Apache-2.0
"""CloudWatch's embedded metric format: what makes a line of the log one that metrics are taken from.

    {"_aws": {"Timestamp": ms since 1970,
              "CloudWatchMetrics": [{"Namespace": …, "Dimensions": [["function", "start"]],
                                     "Metrics": [{"Name": "first_token_ms", "Unit": "Milliseconds"}, …]}]},
     "function": …, "start": "cold", "first_token_ms": 131.2, "inter_token_ms": [13.1, 12.9, …], …}

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/
CloudWatch_Embedded_Metric_Format_Specification.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quickthaw.handler.telemetry.metrics import BY_NAME, Measured

VALUES_LIMIT = 100  # of one metric in one line: CloudWatch's
DIMENSIONS = ("function", "start")  # each a member of the line


def embedded(measured: Measured, namespace: str, time_ms: int) -> dict[str, Any]:
    """The members that turn a line with DIMENSIONS into metrics.

    Units: `time_ms` since 1970.
    """
    told = {name: _limited(values) for name, values in measured.items() if values}
    directive = {
        "Namespace": namespace,
        "Dimensions": [DIMENSIONS],
        "Metrics": [{"Name": name, "Unit": BY_NAME[name].unit.value} for name in told],
    }
    members = {name: values[0] if len(values) == 1 else values for name, values in told.items()}
    return {**members, "_aws": {"Timestamp": time_ms, "CloudWatchMetrics": [directive]}}


def _limited(values: Sequence[float]) -> Sequence[float]:
    """Of too many, as many as may be told, evenly from the smallest to the largest: the same quantiles."""
    if len(values) <= VALUES_LIMIT:
        return values
    ordered = sorted(values)
    return [ordered[index * (len(ordered) - 1) // (VALUES_LIMIT - 1)] for index in range(VALUES_LIMIT)]
