# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from quickthaw.layers.config import Verify
from quickthaw.layers.errors import ManifestError, ShardDamagedError, ShardMissingError, ShardTruncatedError
from quickthaw.layers.inspection import check_all
from tests import shards


def test_a_whole_set_has_no_errors(tmp_path: Path) -> None:
    assert check_all(shards.make(tmp_path), Verify.ALWAYS) == []


def test_every_damaged_file_is_told_of(tmp_path: Path) -> None:
    shard_set = shards.make(tmp_path)
    shards.flip_bit(shard_set / "embedding.safetensors")
    (shard_set / "layer-000.safetensors").unlink()
    os.truncate(shard_set / "layer-002.safetensors", 100)
    shards.add_tokenizer(shard_set)

    errors = check_all(shard_set, Verify.ALWAYS)

    assert [type(error) for error in errors] == [
        ShardDamagedError,
        ShardMissingError,
        ShardTruncatedError,
        ShardMissingError,
    ]
    assert [Path(error.where or "").name for error in errors] == [
        "embedding.safetensors",
        "layer-000.safetensors",
        "layer-002.safetensors",
        "tokenizer.bin",
    ]


def test_a_set_without_a_manifest_is_none(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        check_all(tmp_path, Verify.ALWAYS)
