# SPDX-License-Identifier: Apache-2.0
"""`curl -N`, really run: each chunk is printed when it has come, and the end is told from a break."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.fronts import OURS, TIMEOUT_S, serving, serving_source

CURL = shutil.which("curl")
_BROKEN_OFF = 18  # curl's exit code: partial file

pytestmark = pytest.mark.skipif(CURL is None, reason="there is no curl on this machine")

STREAM = """
from pathlib import Path
from quickthaw.snapshot.streaming import StreamedResponse
import time
def handle(event, context):
    def chunks():
        for n in range(4):
            while not Path(f"go-{n}").exists():
                time.sleep(0.001)
            if event["rawPath"] == "/broken" and n == 3:
                raise ValueError(n)
            yield b"data: %d\\n\\n" % n
    return StreamedResponse(chunks(), "text/event-stream", status=200)
"""


@contextmanager
def _curl(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(CURL), "--no-buffer", "--silent", "--max-time", str(TIMEOUT_S), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        yield process


def test_chunks_arrive_apart_in_time(tmp_path: Path) -> None:
    with serving_source(tmp_path, STREAM) as service, _curl(service.url) as curl:
        assert curl.stdout is not None
        for n in range(4):
            (tmp_path / f"go-{n}").touch()  # what was read before was printed before this existed
            assert curl.stdout.readline() == b"data: %d\n" % n
            assert curl.stdout.readline() == b"\n"
        assert curl.stdout.read() == b""
        assert curl.wait(TIMEOUT_S) == 0


def test_an_answer_that_breaks_off_is_told_from_one_that_ends(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"go-{n}").touch()
    with serving_source(tmp_path, STREAM) as service, _curl(service.url + "/broken") as curl:
        output, _ = curl.communicate(timeout=TIMEOUT_S)
        assert curl.returncode == _BROKEN_OFF

    *whole, error = output.decode().split("\n\n")[:-1]
    assert whole == ["data: 0", "data: 1", "data: 2"]
    assert json.loads(error.removeprefix("data: "))["error"]["type"] == "ValueError"


def test_smollm2_says_something(tmp_path: Path, smollm2_shards: Path) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    request = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0, "stream": True}
    with (
        serving(OURS, tmp_path, environ) as service,
        # As in the README: curl calls this a form, and the gateway sends it on as base64.
        _curl(service.url + "/v1/completions", "--data", json.dumps(request)) as curl,
    ):
        output, _ = curl.communicate(timeout=TIMEOUT_S)

    *chunks, end = [event.removeprefix("data: ") for event in output.decode().split("\n\n") if event]
    assert "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks).startswith(" Paris")
    assert end == "[DONE]"
