# SPDX-License-Identifier: Apache-2.0
"""A ping through the real runtime client: what it does for the request after it, what it does not import."""

import json
from pathlib import Path

from tests.contract.functions import running
from tests.contract.test_cold_path_imports import HEAVY, SOURCE

PROMPT = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
FAN_OUT = {"concurrent.futures", "random", "hashlib"}


def test_the_request_after_a_ping_reads_nothing(tmp_path: Path, smollm2_shards: Path) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    size_bytes = sum(path.stat().st_size for path in smollm2_shards.glob("*.safetensors"))
    for _ in range(2):  # the first start verifies every shard, and needs hashlib for that
        with running(tmp_path, SOURCE, environ=environ) as function:
            first = function.ask_json({"quickthaw": "warm"})
            modules = set(json.loads(function.ask("modules")))
            second = function.ask_json({"quickthaw": "warm"})
            answer = function.ask_json(PROMPT)

    assert first["mapped_bytes"] == first["read_bytes"] == size_bytes
    assert (second["read_bytes"], second["instance_id"]) == (0, first["instance_id"])
    assert answer["text"].startswith(" Paris")
    assert (HEAVY | FAN_OUT) & modules == {"orjson"}  # which writes the answer
