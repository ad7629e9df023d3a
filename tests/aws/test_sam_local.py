# SPDX-License-Identifier: Apache-2.0
"""The deployed packages under `sam local`: a container with AWS's emulator in it, on SmolLM2's shards."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import yaml

from tests import greedy
from tests.aws.containers import BASE_IMAGE, ContainerEngine
from tests.aws.sam import ROOT, RUNTIME, Sam
from tests.contract.fronts import TIMEOUT_S

QUESTION: dict[str, Any] = {"prompt": greedy.SMOLLM2_PROMPT, "max_tokens": 8, "temperature": 0}


def expected_ids() -> list[int]:
    """What the reference answers, with whose f32 tokens those in bf16 agree at the beginning."""
    return greedy.read_golden()[greedy.SMOLLM2].token_ids[:8]


def test_the_template_is_valid(sam: Sam) -> None:
    assert "is a valid SAM Template" in sam.run("validate", "--lint", environ={}).stdout


def test_the_zip_answers(sam: Sam, built: Path, engine: ContainerEngine) -> None:
    answer, log = sam.invoke(built, "ZipFunction", QUESTION, engine.environ)
    assert answer["token_ids"] == expected_ids()
    assert '"quickthaw":"start","start":"cold"' in log


def test_it_answers_in_less_memory_than_its_shards_have(
    sam: Sam, built: Path, engine: ContainerEngine, smollm2_bf16_shards: Path
) -> None:
    assert sum(path.stat().st_size for path in smollm2_bf16_shards.iterdir()) > 256 << 20
    answer, log = sam.invoke(built, "ZipFunction", QUESTION, engine.environ, MemoryMib=128)
    assert answer["token_ids"] == expected_ids()
    assert "Memory Size: 128 MB" in log


def test_it_is_killed_for_memory_as_on_lambda(sam: Sam, built: Path, engine: ContainerEngine) -> None:
    """Keys and values of 4,000 tokens take 180 MiB."""
    body = {"prompt": [[504] * 2000] * 2, "max_tokens": 2, "n": 2}
    event = {
        "version": "2.0",
        "rawPath": "/v1/completions",
        "requestContext": {"http": {"method": "POST", "path": "/v1/completions"}},
        "body": json.dumps(body),
    }
    answer, _ = sam.invoke(built, "ZipFunction", event, engine.environ, MemoryMib=128)
    assert answer["errorType"] == "Runtime.ExitError"
    assert "signal: killed" in answer["errorMessage"]


def test_the_zip_answers_behind_an_api(sam: Sam, built: Path, engine: ContainerEngine) -> None:
    """Of the template's APIs SAM serves none locally, so the built function gets one that it serves."""
    document = yaml.safe_load(built.read_text())
    function = document["Resources"]["ZipFunction"]["Properties"]
    function["Events"] = {"Api": {"Type": "HttpApi"}}
    function["Environment"]["Variables"]["QUICKTHAW_STREAM"] = "on"
    path = built.with_name("with-api.yaml")
    path.write_text(json.dumps(document))
    with sam.serving(path, engine.environ) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request("POST", "/v1/completions", json.dumps(QUESTION))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
    assert response.status == 200, answer
    assert answer["choices"][0]["text"].startswith(" Paris.")
    assert answer["usage"]["completion_tokens"] == 8


def test_the_image_answers(
    sam: Sam, engine: ContainerEngine, smollm2_bf16_shards: Path, tmp_path: Path
) -> None:
    """In a template of its own: what the project's names lies in a registry, where SAM does not look."""
    engine.podman(
        *("build", "--quiet", "--network", "host", "--build-context", f"shards={smollm2_bf16_shards}"),
        *("--build-arg", f"BASE={BASE_IMAGE}:{RUNTIME.removeprefix('python')}-x86_64"),
        *("--tag", "quickthaw:test", ROOT),
    )
    function = {"Type": "AWS::Serverless::Function"}
    properties = {"PackageType": "Image", "ImageUri": "quickthaw:test", "MemorySize": 512, "Timeout": 60}
    template = tmp_path / "template.yaml"
    resources = {"ImageFunction": {**function, "Properties": properties}}
    template.write_text(json.dumps({"Transform": "AWS::Serverless-2016-10-31", "Resources": resources}))
    answer, _ = sam.invoke(template, "ImageFunction", QUESTION, engine.environ)
    assert answer["token_ids"] == expected_ids()
