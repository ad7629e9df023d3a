# SPDX-License-Identifier: Apache-2.0
"""What a process prints, from pipe to lines."""

import os

import pytest

from quickthaw.snapshot.host.output import Output


def test_what_was_printed_is_read_at_once() -> None:
    lines: list[str] = []
    output = Output(lines.append)
    for n in range(100):
        os.write(output.process_end, f"line {n}\n".encode())
        output.read_now()
        assert lines[-1] == f"line {n}\n"
    os.close(output.process_end)
    output.join(10)
    assert len(lines) == 100


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a", b"b\nc", b"\n"], ["ab\n", "c\n"]),
        ([b"no end"], ["no end"]),
        ([b"\n\n"], ["\n", "\n"]),
        ([b"\xff\xc3", b"\xa9\r\n"], ["\ufffdé\r\n"]),
        ([b"x" * 200_000 + b"\n"], ["x" * 200_000 + "\n"]),
        ([], []),
    ],
)
def test_lines(pieces: list[bytes], expected: list[str]) -> None:
    lines: list[str] = []
    output = Output(lines.append)
    with open(output.process_end, "wb", buffering=0) as pipe:
        for piece in pieces:
            pipe.write(piece)
            output.read_now()
    output.join(10)
    assert lines == expected


def test_nothing_more_to_read_after_the_end() -> None:
    output = Output([].append)
    os.close(output.process_end)
    output.join(10)
    output.read_now()
