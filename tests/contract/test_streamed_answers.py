# SPDX-License-Identifier: Apache-2.0
"""Streamed results, from a handler on the real awslambdaric to whoever asked."""

import json
import time
from pathlib import Path

import pytest

from quickthaw.snapshot.errors import FunctionError
from tests.contract.functions import TIMEOUT_S, running

STREAM = """
from pathlib import Path
from quickthaw.snapshot.streaming import StreamedResponse, is_available

def handle(event, context):
    def chunks():
        try:
            for index in range(event["chunks"]):
                if index == event.get("fail_at"):
                    raise ValueError(f"failed at {index}")
                yield b"%d;" % index * event.get("width", 1)
        finally:
            Path("closed").touch()
    if not is_available():
        return "".join(chunk.decode() for chunk in chunks())
    return StreamedResponse(chunks(), "text/plain", status=event.get("status"))
"""


def test_chunks_arrive_one_by_one(tmp_path: Path) -> None:
    source = """
from pathlib import Path
from quickthaw.snapshot.streaming import StreamedResponse
import time
def handle(event, context):
    def chunks():
        yield b"first"
        while not Path("go").exists():  # the second chunk exists only after the first has arrived
            time.sleep(0.001)
        yield b"second"
    return StreamedResponse(chunks())
"""
    with running(tmp_path, source) as function:
        chunks = function.instance.invoke(b"{}", TIMEOUT_S)
        first = next(chunks)
        (tmp_path / "go").touch()
        second = next(chunks)

        assert (first.data, second.data, list(chunks)) == (b"first", b"second", [])
        assert first.arrival_ns < second.arrival_ns


def test_an_error_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    with running(tmp_path, STREAM) as function:
        chunks = function.instance.invoke(b'{"chunks": 5, "fail_at": 2}', TIMEOUT_S)
        received = [next(chunks).data, next(chunks).data]
        with pytest.raises(FunctionError, match="ValueError: failed at 2") as failure:
            next(chunks)
        assert function.ask({"chunks": 1}) == b"0;"

    assert received == [b"0;", b"1;"]
    assert "raise ValueError" in failure.value.stack_trace[-1]
    assert any("failed after its answer had begun" in line for line in function.output)


def test_an_error_before_the_first_chunk_is_an_ordinary_one(tmp_path: Path) -> None:
    with running(tmp_path, STREAM) as function:
        with pytest.raises(FunctionError, match="ValueError: failed at 0"):
            function.ask({"chunks": 5, "fail_at": 0})
        assert function.ask({"chunks": 2}) == b"0;1;"


def test_an_http_answer(tmp_path: Path) -> None:
    with running(tmp_path, STREAM) as function:
        prelude, _, body = function.ask({"chunks": 2, "status": 206}).partition(bytes(8))

    assert json.loads(prelude)["statusCode"] == 206
    assert body == b"0;1;"


def test_who_hangs_up_closes_the_handlers_generator(tmp_path: Path) -> None:
    with running(tmp_path, STREAM) as function:
        endless = {"chunks": 10**9, "width": 10_000}
        chunks = function.instance.invoke(json.dumps(endless).encode(), TIMEOUT_S)
        next(chunks)
        chunks.close()

        deadline = time.monotonic() + TIMEOUT_S
        while not (tmp_path / "closed").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "closed").exists()
        assert function.ask({"chunks": 1}) == b"0;"


def test_a_handler_buffers_under_the_stock_bootstrap(tmp_path: Path) -> None:
    with running(tmp_path, STREAM, bootstrap="awslambdaric") as function:
        assert function.ask_json({"chunks": 3}) == "0;1;2;"


def test_a_streamed_answer_may_be_larger(tmp_path: Path) -> None:
    with running(tmp_path, STREAM) as function:
        assert len(function.ask({"chunks": 10, "width": 500_000})) == 10_000_000
