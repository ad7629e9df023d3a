# SPDX-License-Identifier: Apache-2.0
"""The real entry point in a process of its own, over a tiny model without a tokenizer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quickthaw.layers.checkpoints.split import split
from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.errors import FunctionInitError
from quickthaw.snapshot.host.instance import Instance
from tests import models

HANDLER = "quickthaw.handler.app.lambda_handler"
EVENT = {"prompt": [1, 17, 3], "max_tokens": 4}
TIMEOUT_S = 30.0

# What a greedy completion must not pay for before its first token.
HEAVY = {"torch", "boto3", "transformers", "tokenizers", "jinja2", "ssl", "asyncio", "http.client", "gguf"}
HEAVY |= {"safetensors", "tqdm", "hashlib", "random", "numpy.random", "orjson", "uuid", "secrets", "tempfile"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("app")
    config = models.config("llama")
    models.write_checkpoint(directory / "source", config, models.tensors(config))
    split(str(directory / "source"), directory / "shards", dtype="f32")
    return directory / "shards"


@pytest.fixture
def environ(shards: Path, tmp_path: Path) -> dict[str, str]:
    ours = {"QUICKTHAW_SHARDS": str(shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    return {**{k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}, **ours}


def invoke(instance: Instance, event: dict[str, Any]) -> bytes:
    return b"".join([chunk.data for chunk in instance.invoke(json.dumps(event).encode(), TIMEOUT_S)])


@pytest.fixture(params=["quickthaw.snapshot.bootstrap", "awslambdaric"])
def instance(request: pytest.FixtureRequest, environ: dict[str, str]) -> Iterator[Instance]:
    output: list[str] = []
    with Instance(ColdEngine(HANDLER, bootstrap=request.param), environ, output.append) as instance:
        instance.wait_ready(TIMEOUT_S)
        yield instance


def test_it_answers_under_either_runtime(instance: Instance) -> None:
    first = json.loads(invoke(instance, EVENT))
    answer = json.loads(invoke(instance, EVENT))
    assert answer["token_ids"] == first["token_ids"]
    assert len(answer["token_ids"]) == 4
    assert (answer["finish_reason"], answer["usage"]["prompt_tokens"]) == ("length", 3)
    cached = [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in (first, answer)]
    assert cached == [0, 2]
    assert json.loads(invoke(instance, EVENT)) == answer
    assert json.loads(invoke(instance, {"prompt": [-1]}))["error"]["param"] == "prompt[0]"


def test_a_stream_says_what_an_answer_says(instance: Instance) -> None:
    invoke(instance, EVENT)  # what follows begins with what this has computed
    answer = json.loads(invoke(instance, EVENT))
    streamed = invoke(instance, {**EVENT, "stream": True})
    if streamed.startswith(b"{"):  # under awslambdaric, which cannot stream
        assert json.loads(streamed) == answer
        return
    *events, last, done = streamed.decode().removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    assert [json.loads(event.removeprefix("data: "))["token_id"] for event in events] == answer["token_ids"]
    assert json.loads(last.removeprefix("data: "))["usage"] == answer["usage"]


def test_a_bad_variable_ends_the_init_by_name(environ: dict[str, str]) -> None:
    output: list[str] = []
    with (
        Instance(ColdEngine(HANDLER), {**environ, "QUICKTHAW_SHRADS": "x"}, output.append) as instance,
        pytest.raises(FunctionInitError, match="unknown variable QUICKTHAW_SHRADS"),
    ):
        instance.wait_ready(TIMEOUT_S)


def run_python(script: str, environ: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PREAMBLE = """
import json, os, sys
from quickthaw.handler.app import lambda_handler
class Context:
    aws_request_id = "8476a536"
    def get_remaining_time_in_millis(self): return 60000
"""


def test_a_greedy_answer_imports_nothing_heavy(environ: dict[str, str]) -> None:
    script = PREAMBLE + f"lambda_handler({EVENT}, Context())\nprint(json.dumps(sorted(sys.modules)))"
    modules = json.loads(run_python(script, {**environ, "QUICKTHAW_VERIFY": "never"}).splitlines()[-1])
    assert HEAVY.isdisjoint(modules)


def test_blas_has_one_thread_unless_told_otherwise(environ: dict[str, str]) -> None:
    script = PREAMBLE + "print(os.environ['OPENBLAS_NUM_THREADS'])"
    assert run_python(script, environ) == "1\n"
    assert run_python(script, {**environ, "OPENBLAS_NUM_THREADS": "3"}) == "3\n"
