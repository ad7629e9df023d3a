# SPDX-License-Identifier: Apache-2.0
"""A ping through the real runtime client: what it does for the request after it, what it does not import."""

import json
import subprocess
import sys
from pathlib import Path
from socket import create_server
from typing import Any

import boto3  # type: ignore[import-untyped]

from tests import shards
from tests.contract.fronts import TIMEOUT_S, wait_until
from tests.contract.functions import running
from tests.contract.test_cold_path_imports import HEAVY, SOURCE

PROMPT = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
FAN_OUT = {"concurrent.futures", "random", "hashlib"}


def test_the_request_after_a_ping_reads_nothing(tmp_path: Path, smollm2_shards: Path) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    environ["QUICKTHAW_ENGINE"] = "interpreter"  # or torch would be imported, where it is installed
    size_bytes = sum(path.stat().st_size for path in smollm2_shards.glob("*.safetensors"))
    for _ in range(2):  # the first start verifies every shard, and needs hashlib for that
        with running(tmp_path, SOURCE, environ=environ) as function:
            first = function.ask_json({"quickthaw": "warm"})
            modules = set(json.loads(function.ask("modules")))
            second = function.ask_json({"quickthaw": "warm"})
            answer = function.ask_json(PROMPT)

    assert first["mapped_bytes"] == size_bytes
    assert (second["read_bytes"], second["instance_id"]) == (0, first["instance_id"])
    assert answer["text"].startswith(" Paris")
    assert (HEAVY | FAN_OUT) & modules == {"orjson"}  # which writes the answer


def _host(directory: Path, port: int, *options: str) -> subprocess.Popen[str]:
    """`quickthaw host`, whose function finds Lambda's API at its own host."""
    environ = {
        "PATH": str(Path(sys.executable).parent),
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_LAMBDA": f"http://127.0.0.1:{port}",
        "QUICKTHAW_CACHE": str(directory / "cache"),
    }
    command = [Path(sys.executable).with_name("quickthaw"), "host", "--shards", shards.make(directory)]
    with (directory / "log").open("w") as log:
        arguments = [*command, "--port", str(port), *options]
        return subprocess.Popen(arguments, env=environ, stdout=log, stderr=log, text=True)


def _pings(log: Path) -> list[dict[str, Any]]:
    lines = [line for line in log.read_text().splitlines() if line.startswith('{"quickthaw":"ping"')]
    return [json.loads(line) for line in lines]


def test_three_pings_reach_three_environments(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = _host(tmp_path, port, "--max-instances", "3")
    try:
        wait_until(lambda: f":{port}" in (tmp_path / "log").read_text())
        client = boto3.client(
            "lambda",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        event = {"quickthaw": "warm", "n_environments": 3, "hold_ms": 2000}
        found = json.load(client.invoke(FunctionName="function", Payload=json.dumps(event))["Payload"])
        wait_until(lambda: len(_pings(tmp_path / "log")) == 3)
    finally:
        host.terminate()
        host.wait(TIMEOUT_S)

    assert found["n_invoked"] == 2, found
    assert len({ping["instance_id"] for ping in _pings(tmp_path / "log")}) == 3
