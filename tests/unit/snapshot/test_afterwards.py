# SPDX-License-Identifier: Apache-2.0
import pytest

from quickthaw.snapshot import afterwards


@pytest.fixture(autouse=True)
def _disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afterwards, "_is_enabled", False)


def test_where_nobody_runs_it_later_it_runs_now() -> None:
    done: list[str] = []
    afterwards.defer(lambda: done.append("now"))
    assert done == ["now"]


def test_it_waits_and_runs_once_in_order() -> None:
    done: list[str] = []
    afterwards.enable()
    afterwards.defer(lambda: done.append("first"))
    afterwards.defer(lambda: done.append("second"))
    assert done == []
    afterwards.run_deferred()
    afterwards.run_deferred()
    assert done == ["first", "second"]


def test_a_failure_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    afterwards.enable()
    afterwards.defer(lambda: {}["absent"])
    afterwards.defer(lambda: done.append("second"))
    afterwards.run_deferred()
    assert done == ["second"]
    assert "KeyError: 'absent'" in caplog.text
