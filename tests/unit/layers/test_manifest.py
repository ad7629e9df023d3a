# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

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

    assert manifest.parse(manifest.encode(found.to_json()), "manifest.json") == found
    assert [shard.file for shard in found.shards] == [
        "embedding.safetensors",
        "layer-000.safetensors",
        "layer-001.safetensors",
        "layer-002.safetensors",
    ]
    assert found.name == "source"
    assert found.eos_token_ids == (2,)


def test_a_newer_format_asks_for_an_upgrade(shard_set: Path) -> None:
    shards.edit_manifest(shard_set, lambda record: record.update(version=3))

    with pytest.raises(ManifestVersionError, match="found version 3; upgrade quickthaw"):
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


@pytest.mark.parametrize("offset", [0, 60, 200, 1500, -20, -5, -1])
def test_a_damaged_byte_is_noticed_wherever_it_is(shard_set: Path, offset: int) -> None:
    shards.flip_bit(shard_set / "manifest.json", offset)

    with pytest.raises(ManifestError, match=r"manifest\.json"):
        manifest.read(shard_set)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"theta":10000.0', '"theta":10.0'),
        ('"bos_token_id":1', '"bos_token_id":3'),
        (',"crc32"', ' ,"crc32"'),
    ],
)
def test_a_manifest_that_was_edited_is_refused(shard_set: Path, before: str, after: str) -> None:
    path = shard_set / "manifest.json"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))

    with pytest.raises(ManifestError, match="has not the CRC"):
        manifest.read(shard_set)


def _layer_tensor(record: dict[str, Any], name: str) -> dict[str, Any]:
    entry: dict[str, Any] = record["shards"][2]["tensors"][name]
    return entry


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no version": (lambda m: m.pop("version"), "version"),
    "version is text": (lambda m: m.update(version="1"), "version"),
    "a dtype of a later version": (lambda m: m.update(dtype="int8"), "version"),
    "unknown dtype": (lambda m: m.update(dtype="f64"), "dtype"),
    "no shards": (lambda m: m.pop("shards"), "unusable shards"),
    "a shard too few": (lambda m: m["shards"].pop(), "expected 4, found 3"),
    "a shard twice": (lambda m: m["shards"].append(m["shards"][1]), "expected 4, found 5"),
    "shards out of order": (lambda m: m["shards"].reverse(), "wrong file name"),
    "path escapes": (lambda m: m["shards"][1].update(file="../layer-000.safetensors"), "wrong file name"),
    "absolute path": (lambda m: m["shards"][1].update(file="/etc/passwd"), "wrong file name"),
    "size is text": (lambda m: m["shards"][1].update(size_bytes="9"), "size_bytes"),
    "digest is short": (lambda m: m["shards"][1].update(sha256="abc"), "sha256"),
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
    "huge shape": (lambda m: _layer_tensor(m, "down").update(shape=[2**62, 2**62]), "tensors.down.shape"),
    "wrong dtype": (lambda m: _layer_tensor(m, "down").update(dtype="BF16"), "tensor down .*dtype"),
    "negative offset": (lambda m: _layer_tensor(m, "down").update(offset=-64), "tensor down overlaps"),
    "offset beyond the file": (
        lambda m: _layer_tensor(m, "down").update(offset=2**52),
        "tensor down lies outside",
    ),
    "offset unaligned": (lambda m: _layer_tensor(m, "qkv").update(offset=4097), "tensor qkv is not aligned"),
    "offset is a float": (
        lambda m: _layer_tensor(m, "qkv").update(offset=4096.0),
        r"unusable shards\[2\]\.tensors\.qkv\.offset",
    ),
    "tensors overlap": (
        lambda m: _layer_tensor(m, "down").update(offset=_layer_tensor(m, "gate_up")["offset"] + 64),
        "overlaps",
    ),
    "shape is a float": (
        lambda m: _layer_tensor(m, "attn_norm").update(shape=[64.0]),
        r"shards\[2\]\.tensors\.attn_norm\.shape: .* expected a list of integers, found \[64\.0\]",
    ),
    "tensor is a list": (lambda m: m["shards"][2]["tensors"].update(down=[]), "tensors.down"),
    "shard is null": (lambda m: m["shards"].__setitem__(1, None), r"unusable shards\[1\].*an object"),
    "format is a number": (lambda m: m.update(format=1), "unusable format"),
    "a field too many": (lambda m: m.update(more=1), "unusable more"),
    "name is null": (lambda m: m["model"].update(name=None), "unusable model.name"),
    "no source": (lambda m: m["model"].pop("source"), "unusable model.source"),
    "model is a list": (lambda m: m.update(model=[]), "unusable model"),
    "chat template is a number": (lambda m: m.update(chat_template=5), "unusable chat_template"),
    "chat template is empty": (lambda m: m.update(chat_template={}), "unusable chat_template.source"),
    "special token is a number": (
        lambda m: m.update(chat_template={"source": "", "program": None, "bos_token": 1}),
        "unusable chat_template.bos_token",
    ),
    "tokenizer without a size": (
        lambda m: m.update(tokenizer={"file": "tokenizer.bin"}),
        "unusable tokenizer",
    ),
    "end is infinite": (
        lambda m: m["generation"].update(eos_token_ids=[float("inf")]),
        "unusable generation.eos_token_ids",
    ),
    "end is no token": (
        lambda m: m["generation"].update(eos_token_ids=[199]),
        "unusable generation.eos_token_ids.*vocabulary of 199",
    ),
    "window is absurd": (lambda m: m["model"]["config"].update(windows=[10**30] * 3), "windows"),
    "rope without a kind": (lambda m: m["model"]["config"]["rope"].pop("kind"), "config.rope.kind"),
    "theta is endless": (
        lambda m: m["model"]["config"]["rope"].update(theta=10**400),
        r"config\.rope\.theta.*expected a number, found 1000",
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
