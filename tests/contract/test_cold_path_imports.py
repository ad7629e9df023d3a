# SPDX-License-Identifier: Apache-2.0
"""What a cold start imports up to its answer: what it need not import, it must not."""

import json
from pathlib import Path

import pytest

from tests.contract.functions import running

# The real handler, and a way to look into its process.
SOURCE = """
import sys
from quickthaw.handler import app

def handle(event, context):
    return sorted(sys.modules) if event == "modules" else app.lambda_handler(event, context)
"""
HEAVY = {
    "asyncio",
    "boto3",
    "botocore",
    "ctypes.util",
    "email",
    "gguf",
    "hashlib",
    "http.client",
    "jinja2",
    "multiprocessing",
    "orjson",
    "safetensors",
    "sentencepiece",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "unittest",
    "urllib.request",
}


@pytest.mark.parametrize(
    "event",
    [
        {"prompt": "The capital of France is"},
        {"prompt": [504, 3575]},
        {"messages": [{"role": "user", "content": "What is the capital of France?"}]},
    ],
    ids=["text", "ids", "chat"],
)
def test_a_first_answer_imports_nothing_heavy(
    tmp_path: Path, smollm2_shards: Path, event: dict[str, object]
) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    for _ in range(2):  # the first start verifies every shard, and needs hashlib for that
        with running(tmp_path, SOURCE, environ=environ) as function:
            answer = function.ask({**event, "max_tokens": 2, "stream": True})
            modules = set(json.loads(function.ask("modules")))

    assert answer.endswith(b"data: [DONE]\n\n")
    assert "quickthaw.layers.interpreter" in modules
    assert HEAVY & modules == set()


def test_the_command_that_waits_imports_no_numpy(tmp_path: Path) -> None:
    source = """
import sys
import quickthaw.handler.cli
from quickthaw.handler.command import invoke, table, trace

def handle(event, context):
    return sorted(sys.modules)
"""
    with running(tmp_path, source) as function:
        modules = set(function.ask_json({}))

    assert {"numpy", "quickthaw.layers.shard", "http.client", "ssl"} & modules == set()
