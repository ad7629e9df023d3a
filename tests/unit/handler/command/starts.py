# SPDX-License-Identifier: Apache-2.0
"""A cold start that nobody had to wait for."""

from quickthaw.handler.command.answer import Answer
from quickthaw.handler.command.invoke import ColdStart
from quickthaw.handler.timeline import Phase

MS = 1_000_000
PHASES = [
    Phase("interpreter start", 9 * MS, 9 * MS),
    Phase("numpy", 9 * MS, 50 * MS),
    Phase("init", 50 * MS, 52 * MS),
    Phase("embedding", 51 * MS, 52 * MS, 1_000),
    Phase("first token", 52 * MS, 80 * MS),
    Phase("layer-000", 53 * MS, 54 * MS, 500),
    Phase("layer-000 compute", 54 * MS, 60 * MS),
    Phase("layer-001", 60 * MS, 61 * MS, 500),
    Phase("layer-001 compute", 61 * MS, 66 * MS),
    Phase("report", 90 * MS, 91 * MS),
]


def make() -> ColdStart:
    """Spawned at 1 ms, ready at 53, first token at 82."""
    line = {
        "quickthaw": "start",
        "phases": [phase._asdict() for phase in PHASES],
        "engine": "interpreter",
        "bytes_read": 2_000_000,
        "major_faults": 3,
        "private_mib": 31.5,
        "trace_id": "Root=1",
    }
    answer = Answer([1, 2], ["Pa", "ris"], {"finish_reason": "stop", "model": "m", "usage": {}})
    return ColdStart(1 * MS, 53 * MS, 82 * MS, 95 * MS, answer, line)
