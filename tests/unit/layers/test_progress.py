# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import sys

import pytest

from quickthaw.layers.progress import Bar, Quiet, for_terminal


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = for_terminal("splitting")

    progress.start(10)
    progress.advance(10)
    progress.finish()

    assert isinstance(progress, Quiet)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    """A screen that keeps what is written on it."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    progress = for_terminal("splitting")
    progress.start(10)
    progress.advance(10)
    progress.finish()

    assert isinstance(progress, Bar)
    assert "splitting" in terminal.getvalue()


def test_a_bar_may_be_finished_before_it_was_started() -> None:
    Bar("splitting").finish()
