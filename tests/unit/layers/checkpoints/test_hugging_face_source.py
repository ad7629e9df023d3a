# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.checkpoints.hugging_face_source import open_checkpoint
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError
from tests import models

CONFIG = models.config("llama")
WEIGHTS = models.tensors(CONFIG)


def read(parts: tuple) -> np.ndarray:
    return np.concatenate([tile for part in parts for tile in part.tiles()])


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("n_files", [1, 3])
def test_every_dtype_is_read_from_one_file_or_many(tmp_path: Path, dtype: str, n_files: int) -> None:
    source = open_checkpoint(
        models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS, dtype=dtype, n_files=n_files)
    )

    assert np.array_equal(read(source.shards[0]["head"]), models.decode(WEIGHTS["lm_head.weight"], dtype))
    names = [f"model.layers.2.mlp.{part}_proj.weight" for part in ("gate", "up")]
    expected = np.concatenate([models.decode(WEIGHTS[name], dtype) for name in names])
    assert np.array_equal(read(source.shards[3]["gate_up"]), expected)


def test_tiles_are_rows_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quickthaw.layers.checkpoints.source.TILE_BYTES", 4 * 64 * 10)
    source = open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS))

    (embedding,) = source.shards[0]["embedding"]
    tiles = list(embedding.tiles())

    assert [tile.shape for tile in tiles] == [(10, 64)] * 19 + [(9, 64)]
    assert np.array_equal(np.concatenate(tiles), WEIGHTS["model.embed_tokens.weight"])


@pytest.mark.parametrize("name", models.CONFIGS)
def test_every_option_is_arranged(tmp_path: Path, name: str) -> None:
    config = models.config(name)
    source = open_checkpoint(models.write_checkpoint(tmp_path / "m", config, models.tensors(config)))

    assert len(source.shards) == 4
    assert ("qkv_bias" in source.shards[1]) == (
        name in ("llama-biases", "qwen2", "qwen2-window", "qwen3-bias")
    )


@pytest.mark.parametrize(
    ("generation", "expected"),
    [({}, (2,)), ({"eos_token_id": 7}, (2, 7)), ({"eos_token_id": [9, 2, 7]}, (2, 7, 9))],
)
def test_ends_are_those_of_both_files(
    tmp_path: Path, generation: dict[str, object], expected: tuple[int, ...]
) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    (directory / "generation_config.json").write_text(json.dumps(generation))

    assert open_checkpoint(directory).eos_token_ids == expected


def test_an_end_that_is_no_token_is_refused(tmp_path: Path) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    for value in ([[1]], "x", [199], -1, {}):
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))

        with pytest.raises(CheckpointError, match=r"unusable eos_token_id: .*generation_config\.json"):
            open_checkpoint(directory)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_is_named(tmp_path: Path, value: float) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    weights = WEIGHTS | {name: WEIGHTS[name].copy()}
    weights[name][-1, -1] = value
    source = open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, weights))

    with pytest.raises(CheckpointError, match=rf"tensor {name} has values .*model\.safetensors"):
        read(source.shards[2]["gate_up"])


def test_old_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    weights = WEIGHTS | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}

    assert open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, weights)).model.n_layers == 3


def test_a_stored_head_may_repeat_a_tied_embedding(tmp_path: Path) -> None:
    config = models.config("llama-tied")
    weights = models.tensors(config)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    assert "head" not in open_checkpoint(models.write_checkpoint(tmp_path / "m", config, weights)).shards[0]

    weights["lm_head.weight"] = weights["lm_head.weight"].copy()
    weights["lm_head.weight"][-1, -1] += 1
    with pytest.raises(UnsupportedModelError, match="differs from the embedding"):
        open_checkpoint(models.write_checkpoint(tmp_path / "m", config, weights))


@pytest.mark.parametrize(
    "name", ["model.layers.1.self_attn.k_proj.weight", "model.norm.weight", "lm_head.weight"]
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    weights = {key: value for key, value in WEIGHTS.items() if key != name}

    with pytest.raises(CheckpointError, match=f"lacks the tensor {name}"):
        open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, weights))


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    weights = WEIGHTS | {"model.layers.1.mlp.up_proj.weight": np.ones((96, 63), np.float32)}

    with pytest.raises(CheckpointError, match=r"up_proj.*expected \(96, 64\), found \(96, 63\)"):
        open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, weights))


@pytest.mark.parametrize(
    "name", ["model.layers.3.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias"]
)
def test_an_unexplained_tensor_is_named(tmp_path: Path, name: str) -> None:
    weights = WEIGHTS | {name: np.ones(64, np.float32)}

    with pytest.raises(CheckpointError, match=f"does not explain.*{name}"):
        open_checkpoint(models.write_checkpoint(tmp_path / "m", CONFIG, weights))


def test_an_unsupported_dtype_is_named(tmp_path: Path) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"', 1))

    with pytest.raises(UnsupportedModelError, match=r"embed_tokens.*expected F32, F16, BF16, found I32"):
        open_checkpoint(directory)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    os.truncate(directory / "model.safetensors", 9000)

    with pytest.raises(CheckpointError, match=r"cannot read a safetensors file.*model\.safetensors"):
        open_checkpoint(directory)


def test_a_file_cut_short_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    source = open_checkpoint(directory)
    os.truncate(directory / "model.safetensors", 9000)

    with pytest.raises(CheckpointError, match="an end inside a tensor"):
        read(source.shards[0]["head"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model.norm.weight": "absent.safetensors"}, "absent.safetensors"),
        ({"model.norm.weight": "../model-00001-of-00002.safetensors"}, "leaves its directory"),
        ({"model.other.weight": "model-00001-of-00002.safetensors"}, "model.other.weight is not where"),
    ],
)
def test_an_index_that_is_wrong_is_refused(tmp_path: Path, change: dict[str, str], named: str) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS, n_files=2)
    path = directory / "model.safetensors.index.json"
    record = json.loads(path.read_text())
    record["weight_map"].update(change)
    path.write_text(json.dumps(record))

    with pytest.raises(CheckpointError, match=named):
        open_checkpoint(directory)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    (directory / "config.json").write_text(text)

    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(directory)


def test_a_directory_without_weights_says_what_is_expected(tmp_path: Path) -> None:
    directory = models.write_checkpoint(tmp_path / "m", CONFIG, WEIGHTS)
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")

    with pytest.raises(CheckpointError, match=r"expected model\.safetensors or .*save_pretrained"):
        open_checkpoint(directory)
