# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from quickthaw.layers.checkpoints.gguf_source import open_gguf
from quickthaw.layers.checkpoints.hugging_face_source import open_checkpoint
from quickthaw.layers.checkpoints.source import Source
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError
from tests import gguf_models, models

F32 = gguf.GGMLQuantizationType.F32
SUPPORTED = (
    "llama",
    "llama-tied",
    "llama-biases",
    "llama-head-dim",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3-bias",
)
# The types that the package can write.
WRITABLE = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def values_of(source: Source) -> list[dict[str, np.ndarray]]:
    """Every tensor of every shard, whole."""
    return [
        {
            name: np.concatenate([tile for part in parts for tile in part.tiles()])
            for name, parts in shard.items()
        }
        for shard in source.shards
    ]


def write(
    path: Path, name: str = "llama", matrix_type: gguf.GGMLQuantizationType = F32, **changes: Any
) -> Path:
    config = models.config(name)
    metadata = gguf_models.metadata(config) | changes
    return gguf_models.write_gguf(path, metadata, models.tensors(config), matrix_type)


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_file_holds_what_the_checkpoint_it_was_made_from_holds(name: str, tmp_path: Path) -> None:
    config = models.config(name)
    directory = models.write_checkpoint(tmp_path / "hf", config, models.tensors(config))

    ours, theirs = open_gguf(write(tmp_path / "tiny.gguf", name)), open_checkpoint(directory)

    for shard, expected in zip(values_of(ours), values_of(theirs), strict=True):
        assert shard.keys() == expected.keys()
        for tensor in shard:
            assert np.array_equal(shard[tensor], expected[tensor]), tensor
    assert ours.model.tied_head == theirs.model.tied_head
    assert ours.eos_token_ids == theirs.eos_token_ids == (2,)


@pytest.mark.parametrize("type_name", WRITABLE)
def test_every_type_is_dequantised_as_the_package_does(type_name: str, tmp_path: Path) -> None:
    matrix_type = gguf.GGMLQuantizationType[type_name]
    weights = models.tensors(models.config("qwen2"))  # q and k are not interleaved

    (layer, *_) = values_of(open_gguf(write(tmp_path / "tiny.gguf", "qwen2", matrix_type)))[1:]

    name = "model.layers.0.mlp.down_proj.weight"
    expected = gguf.dequantize(gguf.quantize(weights[name], matrix_type), matrix_type)
    assert np.array_equal(layer["down"], expected)
    assert np.allclose(layer["down"], weights[name], atol=0.1)


def _can_dequantise(kind: gguf.GGMLQuantizationType) -> bool:
    block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    try:
        gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize(
    "kind", [*filter(_can_dequantise, gguf.GGML_QUANT_SIZES)], ids=lambda kind: kind.name
)
def test_tiles_of_every_type_are_what_the_package_makes_of_the_whole(
    kind: gguf.GGMLQuantizationType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = models.config("qwen2", hidden_size=256, intermediate_size=8, num_hidden_layers=1)
    block_items, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    # Bytes below 64: no scale is infinite, whatever the type.
    raw = np.random.default_rng(0).integers(0, 64, (199, 256 // block_items * block_bytes), np.uint8)
    weights = models.tensors(config)
    del weights["lm_head.weight"]
    path = gguf_models.write_gguf(
        tmp_path / "x.gguf", gguf_models.metadata(config), weights, raw_tensors={"output.weight": (raw, kind)}
    )
    monkeypatch.setattr("quickthaw.layers.checkpoints.source.TILE_BYTES", 4 * 256 * 7)

    (head,) = open_gguf(path).shards[0]["head"]
    tiles = list(head.tiles())

    assert len(tiles) == 29
    assert np.array_equal(np.concatenate(tiles), gguf.dequantize(raw, kind))


def test_interleaved_rows_are_put_right_across_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "tiny.gguf", "llama", gguf.GGMLQuantizationType.Q8_0)
    whole = values_of(open_gguf(path))
    monkeypatch.setattr("quickthaw.layers.checkpoints.source.TILE_BYTES", 1)

    source = open_gguf(path)

    assert len(list(source.shards[1]["qkv"][0].tiles())) == 4  # one for each head
    for shard, expected in zip(values_of(source), whole, strict=True):
        assert all(np.array_equal(shard[name], expected[name]) for name in expected)


def test_frequency_factors_come_from_their_tensor(tmp_path: Path) -> None:
    config = models.config("llama")
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    weights = models.tensors(config) | {"rope_freqs.weight": factors}

    source = open_gguf(gguf_models.write_gguf(tmp_path / "x.gguf", gguf_models.metadata(config), weights))

    assert source.model.rope.kind == "factors"
    assert source.model.rope.frequency_factors == tuple(factors.tolist())


def test_template_and_special_tokens_come_from_the_metadata(tmp_path: Path) -> None:
    changes = {"tokenizer.chat_template": "{{ messages }}", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"]}
    source = open_gguf(write(tmp_path / "x.gguf", **changes))

    assert source.chat_template == "{{ messages }}"
    assert source.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert source.tokenizer is not None


def test_a_file_without_a_vocabulary_has_no_tokenizer(tmp_path: Path) -> None:
    source = open_gguf(write(tmp_path / "x.gguf"))

    assert source.tokenizer is None
    assert source.special_tokens == {}


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    config = models.config("llama")
    weights = models.tensors(config)
    del weights["model.layers.1.mlp.up_proj.weight"]
    path = gguf_models.write_gguf(tmp_path / "x.gguf", gguf_models.metadata(config), weights)

    with pytest.raises(CheckpointError, match=r"lacks the tensor blk\.1\.ffn_up\.weight"):
        open_gguf(path)


def test_half_a_fused_bias_is_refused(tmp_path: Path) -> None:
    config = models.config("llama-biases")
    weights = models.tensors(config)
    del weights["model.layers.1.self_attn.k_proj.bias"]
    path = gguf_models.write_gguf(tmp_path / "x.gguf", gguf_models.metadata(config), weights)

    with pytest.raises(CheckpointError, match=r"lacks the tensor blk\.1\.attn_k\.bias"):
        open_gguf(path)


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    config = models.config("llama")
    weights = models.tensors(config) | {"model.layers.3.mlp.up_proj.weight": np.ones((2, 2), np.float32)}
    path = gguf_models.write_gguf(tmp_path / "x.gguf", gguf_models.metadata(config), weights)

    with pytest.raises(CheckpointError, match=r"does not explain.*blk\.3\.ffn_up\.weight"):
        open_gguf(path)


def test_a_type_that_cannot_be_dequantised_is_refused(tmp_path: Path) -> None:
    config = models.config("llama")
    weights: dict[str, Any] = models.tensors(config)
    weights["model.norm.weight"] = np.ones(64, np.int32)
    path = gguf_models.write_gguf(tmp_path / "x.gguf", gguf_models.metadata(config), weights)

    with pytest.raises(UnsupportedModelError, match=r"output_norm\.weight.*I32"):
        open_gguf(path)


def test_one_part_of_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="one of several parts"):
        open_gguf(write(tmp_path / "x.gguf", **{"split.count": 3}))


def test_a_file_that_ends_in_its_data_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    os.truncate(path, path.stat().st_size - 1000)

    with pytest.raises(CheckpointError, match=r"ends before tensor blk\.2\."):
        open_gguf(path)


@pytest.mark.parametrize(
    "changes",
    [{"split.count": "2"}, {"tokenizer.chat_template": 5}, {"tokenizer.ggml.padding_token_id": "0"}],
)
def test_malformed_metadata_is_named_with_its_file(tmp_path: Path, changes: dict[str, Any]) -> None:
    (key,) = changes

    with pytest.raises(CheckpointError, match=rf"^unusable {key}: .*bad\.gguf: expected"):
        open_gguf(write(tmp_path / "bad.gguf", **changes))
