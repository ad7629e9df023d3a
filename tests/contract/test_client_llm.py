# SPDX-License-Identifier: Apache-2.0
"""Simon Willison's `llm`, really run, pointed at the function as its users point it at any such server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import shards
from tests.contract.fronts import OURS, TIMEOUT_S, Service, serving


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("tiny")
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make_chat(directory)),
        "QUICKTHAW_CACHE": str(directory / "cache"),
    }
    with serving(OURS, directory, environ) as service:
        yield service


def _llm(directory: Path, service: Service, model: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    models = [{"model_id": "served", "model_name": model, "api_base": service.url + "/v1"}]
    (directory / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
    environ = {**os.environ, "LLM_USER_PATH": str(directory), "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "llm", "prompt", "--model", "served", "--no-log", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("mode", [(), ("--no-stream",)], ids=["streamed", "whole"])
def test_a_prompt_with_a_system_prompt(tmp_path: Path, tiny: Service, mode: tuple[str, ...]) -> None:
    options = ("--system", "Be short.", "--option", "temperature", "0", "--option", "max_tokens", "9")
    answer = _llm(tmp_path, tiny, "tiny", "Hello", *options, *mode)

    assert (answer.returncode, answer.stderr) == (0, "")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]
    _, expected = tiny.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 9})
    assert answer.stdout.strip() == expected["choices"][0]["message"]["content"].strip()


def test_an_error_is_shown(tmp_path: Path, tiny: Service) -> None:
    answer = _llm(tmp_path, tiny, "another", "Hello")

    assert answer.returncode == 1
    assert "another" in answer.stderr


def test_smollm2(tmp_path: Path, smollm2_shards: Path) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    options = ("--option", "temperature", "0", "--option", "max_tokens", "16")
    with serving(OURS, tmp_path, environ) as service:
        answer = _llm(tmp_path, service, "SmolLM2-135M-Instruct", "What is the capital of France?", *options)

    assert answer.stdout == "The capital of France is Paris.\n"
