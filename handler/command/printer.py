# SPDX-License-Identifier: Apache-2.0
"""Prints what a model or a function says, which may be anything."""

from typing import TextIO

_CONTROL_CODES = (*range(9), *range(11, 32), *range(127, 160))  # but for tab and line feed
FOR_TERMINALS = dict.fromkeys(_CONTROL_CODES, "\N{REPLACEMENT CHARACTER}")


class Printer:
    """Prints text as it comes; to a terminal, without the control characters that could steer it."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._is_terminal = output.isatty()

    def take(self, text: str) -> None:
        """Print `text` now."""
        self._output.write(text.translate(FOR_TERMINALS) if self._is_terminal else text)
        self._output.flush()

    def take_line(self, line: str) -> None:
        """Print `line` now, and end it."""
        self.take(line + "\n")
