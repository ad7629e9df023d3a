# SPDX-License-Identifier: Apache-2.0
"""The tables, as they look."""

from quickthaw.handler.command.table import format_start, format_table
from tests.unit.handler.command import starts


def test_where_the_time_of_a_start_went() -> None:
    assert format_start(starts.make()).splitlines() == [
        "phase                    ms  bytes",
        "─────────────────────  ────  ─────",
        "interpreter start       8.0",
        "numpy                  41.0",
        "init                    2.0",
        "  embedding             1.0  1,000",
        "first token            28.0",
        "  2 x layer-N           2.0  1,000",
        "  2 x layer-N compute  11.0",
        "ready 52.0 ms, first token 81.0 ms, engine interpreter, "
        "2.0 MB of files, 31.5 MiB private, 3 major faults",
    ]


def test_a_function_that_said_nothing_about_its_start() -> None:
    start = starts.make()
    start.line = {}

    assert format_start(start).splitlines()[-1] == "ready 52.0 ms, first token 81.0 ms"


def test_columns_are_as_wide_as_needed() -> None:
    assert format_table([("a", "b"), ("long", "1"), ("x", "12345")]).splitlines() == [
        "a         b",
        "────  ─────",
        "long      1",
        "x     12345",
    ]
