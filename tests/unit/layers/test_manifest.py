# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quickthaw.layers import manifest
from quickthaw.layers.errors import ManifestError, ManifestVersionError
from tests import shards


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make(tmp_path)


def test_a_manifest_survives_being_written_and_read(shard_set: Path) -> None:
    found = manifest.read(shard_set)

    assert manifest.parse(json.dumps(found.to_json()).encode(), "manifest.json") == found
    assert [shard.file for shard in found.shards] == [
        "embedding.safetensors",
        "layer-000.safetensors",
        "layer-001.safetensors",
        "layer-002.safetensors",
    ]
    assert found.name == "source"
    assert found.eos_token_ids == (2,)


def test_a_newer_format_asks_for_an_upgrade(shard_set: Path) -> None:
    shards.edit_manifest(shard_set, lambda record: record.update(version=2))

    with pytest.raises(ManifestVersionError, match="found version 2; upgrade quickthaw"):
        manifest.read(shard_set)


def test_a_newer_format_may_have_any_content(shard_set: Path) -> None:
    (shard_set / "manifest.json").write_text('{"format": "quickthaw-shards", "version": 7}')

    with pytest.raises(ManifestVersionError):
        manifest.read(shard_set)


def test_an_absent_manifest_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"manifest\.json.*QUICKTHAW_SHARDS"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", "[" * 100_000, '{"format": "other", "version": 1}', "\udcff"]
)
def test_what_is_no_manifest_is_refused(shard_set: Path, text: str) -> None:
    (shard_set / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ManifestError):
        manifest.read(shard_set)


def test_an_absurdly_large_manifest_is_not_read(shard_set: Path) -> None:
    with open(shard_set / "manifest.json", "r+b") as file:
        file.truncate(1 << 30)

    with pytest.raises(ManifestError, match="absurdly large"):
        manifest.read(shard_set)


def _layer_tensor(record: dict[str, Any], name: str) -> dict[str, Any]:
    entry: dict[str, Any] = record["shards"][2]["tensors"][name]
    return entry


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no version": (lambda m: m.pop("version"), "version"),
    "version is text": (lambda m: m.update(version="1"), "version"),
    "unknown dtype": (lambda m: m.update(dtype="f64"), "dtype"),
    "no shards": (lambda m: m.pop("shards"), "shards"),
    "a shard too few": (lambda m: m["shards"].pop(), "expected 4, found 3"),
    "a shard twice": (lambda m: m["shards"].append(m["shards"][1]), "expected 4, found 5"),
    "shards out of order": (lambda m: m["shards"].reverse(), "wrong file name"),
    "path escapes": (lambda m: m["shards"][1].update(file="../layer-000.safetensors"), "wrong file name"),
    "absolute path": (lambda m: m["shards"][1].update(file="/etc/passwd"), "wrong file name"),
    "size is text": (lambda m: m["shards"][1].update(size_bytes="9"), "size or digest"),
    "digest is short": (lambda m: m["shards"][1].update(sha256="abc"), "size or digest"),
    "tokenizer elsewhere": (
        lambda m: m.update(tokenizer={"file": "../tokenizer.bin", "size_bytes": 1, "sha256": ""}),
        "tokenizer",
    ),
    "tensor absent": (lambda m: m["shards"][2]["tensors"].pop("down"), "lacks tensors.*down"),
    "tensor unknown": (
        lambda m: m["shards"][2]["tensors"].update(extra=_layer_tensor(m, "down")),
        "unknown tensors.*extra",
    ),
    "wrong shape": (lambda m: _layer_tensor(m, "down").update(shape=[1, 2]), "tensor down .*shape"),
    "huge shape": (lambda m: _layer_tensor(m, "down").update(shape=[2**62, 2**62]), "tensor down"),
    "wrong dtype": (lambda m: _layer_tensor(m, "down").update(dtype="BF16"), "tensor down .*dtype"),
    "negative offset": (lambda m: _layer_tensor(m, "down").update(offset=-64), "tensor down overlaps"),
    "offset beyond the file": (
        lambda m: _layer_tensor(m, "down").update(offset=2**62),
        "tensor down lies outside",
    ),
    "offset unaligned": (lambda m: _layer_tensor(m, "qkv").update(offset=4097), "tensor qkv is not aligned"),
    "offset is a float": (
        lambda m: _layer_tensor(m, "qkv").update(offset=4096.0),
        "tensor qkv is not aligned",
    ),
    "tensors overlap": (
        lambda m: _layer_tensor(m, "down").update(offset=_layer_tensor(m, "gate_up")["offset"] + 64),
        "overlaps",
    ),
    "impossible model": (lambda m: m["model"]["config"].update(n_kv_heads=3), "n_kv_heads"),
    "model without a field": (lambda m: m["model"]["config"].pop("head_dim"), "head_dim"),
    "model with a field too many": (lambda m: m["model"]["config"].update(experts=8), "experts"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(shard_set: Path, damage: str) -> None:
    change, named = DAMAGE[damage]
    shards.edit_manifest(shard_set, change)

    with pytest.raises(ManifestError, match=named) as caught:
        manifest.read(shard_set)
    assert "manifest.json" in str(caught.value)
