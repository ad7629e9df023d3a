# SPDX-License-Identifier: Apache-2.0
"""The real handler, request after request in one process."""

import json
from pathlib import Path

import pytest

from quickthaw.handler.timeline import private_mib
from tests import shards
from tests.contract.functions import Function, running

SOURCE = "from quickthaw.handler.app import lambda_handler as handle\n"


def _memory_mib(function: Function) -> float:
    mib = private_mib(f"/proc/{function.instance.pid}/status")
    if mib is None:
        pytest.skip("this kernel does not say what memory is private")
    return mib


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_memory_does_not_grow_with_requests(tmp_path: Path, is_streamed: bool) -> None:
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make(tmp_path)),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    event = {"prompt": [1, 2, 3], "max_tokens": 5, "stream": is_streamed}
    with running(tmp_path, SOURCE, environ=environ) as function:
        function.ask(event)  # from the next one on the prompt is known, and the usage says so
        answers = {function.ask(event) for _ in range(50)}
        before_mib = _memory_mib(function)
        answers |= {function.ask(event) for _ in range(200)}
        growth_mib = _memory_mib(function) - before_mib

    assert len(answers) == 1
    assert growth_mib < 0.5  # 2.6 KB for each request would be noticed


def test_a_bad_request_harms_no_other(tmp_path: Path) -> None:
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make(tmp_path)),
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }
    good = {"prompt": [1, 2, 3], "max_tokens": 3}
    with running(tmp_path, SOURCE, environ=environ) as function:
        function.ask(good)  # from the next one on the prompt is known, and the usage says so
        before = function.ask(good)
        for bad in ({}, {**good, "max_tokens": 0}, {"prompt": []}, {"prompt": [10**9]}, 7, None):
            assert "error" in json.loads(function.ask(bad))
            assert function.ask(good) == before
