# SPDX-License-Identifier: Apache-2.0
"""Tables for a terminal, and the one that shows where the time of a start went."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from quickthaw.handler.command.invoke import ColdStart
from quickthaw.handler.timeline import Phase


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    is_inside: bool  # of the row before it that is not
    elapsed_ns: int
    size_bytes: int
    n_phases: int = 1

    def plus(self, other: "_Row", name: str) -> "_Row":
        """Both in one."""
        return _Row(
            name,
            self.is_inside,
            self.elapsed_ns + other.elapsed_ns,
            self.size_bytes + other.size_bytes,
            self.n_phases + other.n_phases,
        )


def format_start(start: ColdStart) -> str:
    """One line a phase up to the first token, what lies inside it indented, and the sums below."""
    until_first_token = [phase for phase in start.phases() if phase.start_ns < start.first_token_ns]
    lines = [("phase", "ms", "bytes")]
    for row in _fold(_rows(until_first_token)):
        size = f"{row.size_bytes:,}" if row.size_bytes else ""
        name = row.name if row.n_phases == 1 else f"{row.n_phases} x {row.name}"
        lines.append(("  " * row.is_inside + name, f"{row.elapsed_ns / 1e6:.1f}", size))
    return f"{format_table(lines)}\n{_sums(start)}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be, the first one flush left, the others right; row 0 is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def _rows(phases: Sequence[Phase]) -> Iterator[_Row]:
    end_ns = 0
    for phase in phases:
        is_inside = phase.start_ns < end_ns
        end_ns = max(end_ns, phase.end_ns)
        yield _Row(phase.name, is_inside, phase.end_ns - phase.start_ns, phase.size_bytes)


def _fold(rows: Iterable[_Row]) -> list[_Row]:
    """Add up what differs only in a number and lies inside the same phase: thirty layers are one line."""
    folded: dict[tuple[int, str], _Row] = {}
    n_phases = 0
    for row in rows:
        n_phases += not row.is_inside
        key = n_phases, re.sub(r"\d+", "N", row.name)
        same = folded.get(key)
        folded[key] = row if same is None else same.plus(row, key[1])
    return list(folded.values())


def _sums(start: ColdStart) -> str:
    parts = [
        f"ready {start.since_spawn_ms(start.ready_ns):.1f} ms",
        f"first token {start.since_spawn_ms(start.first_token_ns):.1f} ms",
    ]
    if start.line:
        parts += [
            f"engine {start.line['engine']}",
            f"{start.line['bytes_read'] / 1e6:,.1f} MB of files",
            f"{start.line['private_mib']} MiB private",
            f"{start.line['major_faults']} major faults",
        ]
    return ", ".join(parts)
