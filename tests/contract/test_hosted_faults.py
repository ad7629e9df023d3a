# SPDX-License-Identifier: Apache-2.0
"""Shards that fail under a function, as its callers see it: an error for the request, then right answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import shards
from tests.contract.fronts import OURS, Service, serving

REQUEST = {"prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0, "logprobs": 1}
LAYER = "layer-001.safetensors"
# The file is cut after it was looked at, before it is computed with.
CUTTING = f"""
import os
from quickthaw.handler.app import lambda_handler
from quickthaw.layers.shard import Shard

give = Shard.tensor

def cut_and_give(shard, name):
    if os.path.exists("cut") and shard.name == "{LAYER}".removesuffix(".safetensors"):
        os.unlink("cut")
        os.truncate(os.path.join(os.environ["QUICKTHAW_SHARDS"], "{LAYER}"), 0)
    return give(shard, name)

Shard.tensor = cut_and_give
"""
# Root may read everything unless it gives up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: capset(2).
UNPRIVILEGED = """
import ctypes

header, capabilities = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
assert libc.capget(header, capabilities) == 0
capabilities[0] &= ~0b110
assert libc.capset(header, capabilities) == 0

from quickthaw.handler.app import lambda_handler
"""


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make(tmp_path)


@contextmanager
def _serving(
    shard_set: Path, directory: Path, source: str | None = None, **environ: str
) -> Iterator[Service]:
    environ = {"QUICKTHAW_SHARDS": str(shard_set), "QUICKTHAW_CACHE": str(directory / "cache"), **environ}
    if source is not None:
        (directory / "ours.py").write_text(source)
    handler = OURS if source is None else "ours.lambda_handler"
    with serving(handler, directory, environ, max_instances=1) as service:
        yield service


def _answer(service: Service) -> tuple[Any, Any]:
    """The tokens, and how likely they were: where a prompt is known already, the last digits may differ."""
    status, answer = service.post("/v1/completions", REQUEST)
    assert status == 200, answer
    found = answer["choices"][0]["logprobs"]
    return found["tokens"], found["token_logprobs"]


def _assert_same(found: tuple[Any, Any], right: tuple[Any, Any]) -> None:
    assert found[0] == right[0]
    assert found[1] == pytest.approx(right[1], abs=1e-5)


def _assert_refused(service: Service, kind: str) -> None:
    status, answer = service.post("/v1/completions", REQUEST)
    assert status == 503
    assert answer["error"]["code"] == "model_unavailable"
    assert kind in answer["error"]["message"]


@pytest.mark.parametrize("map_mode", ["auto", "copy"])
def test_a_replaced_shard_fails_requests_until_it_is_the_right_one(
    shard_set: Path, tmp_path: Path, map_mode: str
) -> None:
    shutil.copy(shard_set / LAYER, tmp_path / "whole")
    shutil.copy(shard_set / LAYER, tmp_path / "other")
    shards.flip_bit(tmp_path / "other")
    with _serving(shard_set, tmp_path, QUICKTHAW_MAP=map_mode) as service:
        right = _answer(service)
        (tmp_path / "other").rename(shard_set / LAYER)
        _assert_refused(service, "ShardReplacedError")
        _assert_refused(service, "ShardDamagedError")
        (tmp_path / "whole").rename(shard_set / LAYER)
        _assert_same(_answer(service), right)
        assert len(service.starts) == 1


def test_a_cut_in_the_middle_of_a_product_costs_an_instance(shard_set: Path, tmp_path: Path) -> None:
    shutil.copy(shard_set / LAYER, tmp_path / "whole")
    with _serving(shard_set, tmp_path, CUTTING) as service:
        right = _answer(service)
        (tmp_path / "cut").touch()
        status, error = service.post("/v1/completions", REQUEST)
        assert status == 502
        assert error["error"]["message"].endswith("signal: bus error")
        shutil.copy(tmp_path / "whole", shard_set / LAYER)
        _assert_same(_answer(service), right)
        assert len(service.starts) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to give up what only root has")
def test_a_permission_that_is_lost_is_told_of_until_it_is_back(shard_set: Path, tmp_path: Path) -> None:
    with _serving(shard_set, tmp_path, UNPRIVILEGED) as service:
        right = _answer(service)
        shard_set.chmod(0)
        _assert_refused(service, "ShardMissingError")
        _assert_refused(service, "ShardMissingError")
        shard_set.chmod(0o700)
        _assert_same(_answer(service), right)
        assert len(service.starts) == 1
