# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face directory as a source of shards: config.json and one safetensors file, or an index of many.

The safetensors library checks each file; rows are then read directly, because its numpy side knows no bf16
and a whole tensor at once would be too much memory.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quickthaw.layers.checkpoints.hugging_face_config import declared_biases, from_hugging_face, token_ids
from quickthaw.layers.checkpoints.shard_file import Tile
from quickthaw.layers.checkpoints.source import Names, Source, StoredTensor, arrange
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
# Written by old transformers; recomputed from config.json by everyone.
_DERIVED = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")

NAMES = Names(
    embedding={"embedding": (_EMBEDDING,), "norm": ("model.norm.weight",), "head": (_HEAD,)},
    layer={
        "attn_norm": ("model.layers.{}.input_layernorm.weight",),
        "qkv": tuple(f"model.layers.{{}}.self_attn.{part}_proj.weight" for part in "qkv"),
        "qkv_bias": tuple(f"model.layers.{{}}.self_attn.{part}_proj.bias" for part in "qkv"),
        "q_norm": ("model.layers.{}.self_attn.q_norm.weight",),
        "k_norm": ("model.layers.{}.self_attn.k_norm.weight",),
        "attn_out": ("model.layers.{}.self_attn.o_proj.weight",),
        "attn_out_bias": ("model.layers.{}.self_attn.o_proj.bias",),
        "ffn_norm": ("model.layers.{}.post_attention_layernorm.weight",),
        "gate_up": ("model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight"),
        "gate_up_bias": ("model.layers.{}.mlp.gate_proj.bias", "model.layers.{}.mlp.up_proj.bias"),
        "down": ("model.layers.{}.mlp.down_proj.weight",),
        "down_bias": ("model.layers.{}.mlp.down_proj.bias",),
    },
)


def _from_f32(rows: npt.NDArray[np.uint8]) -> Tile:
    return rows.view("<f4").astype(np.float32, copy=False)


def _from_f16(rows: npt.NDArray[np.uint8]) -> Tile:
    return rows.view("<f2").astype(np.float32)


def _from_bf16(rows: npt.NDArray[np.uint8]) -> Tile:
    return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)


_DECODERS = {"F32": (4, _from_f32), "F16": (2, _from_f16), "BF16": (2, _from_bf16)}


def open_checkpoint(directory: Path) -> Source:
    """Raises: CheckpointError, UnsupportedModelError."""
    config = read_json(directory / "config.json")
    generation_path = directory / "generation_config.json"
    generation = read_json(generation_path) if generation_path.exists() else {}
    model = from_hugging_face(config)
    stored = {name: tensor for name, tensor in _stored(directory).items() if not _DERIVED.fullmatch(name)}
    if model.tied_head and _HEAD in stored:
        _check_tied(stored.pop(_HEAD), stored, directory)
    eos_token_ids = {*model.eos_token_ids, *token_ids(generation.get("eos_token_id"))}
    return Source(
        model=model,
        eos_token_ids=tuple(sorted(eos_token_ids)),
        tokenizer=directory if _has_tokenizer(directory) else None,
        chat_template=_chat_template(directory),
        special_tokens=_special_tokens(directory),
        shards=arrange(model, stored, NAMES, declared_biases(config), directory),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint. Raises: CheckpointError."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        raise CheckpointError("cannot read a checkpoint's file", where=path, found=str(exc)) from exc
    if not isinstance(record, dict):
        raise CheckpointError(
            "cannot read a checkpoint's file",
            where=path,
            expected="a JSON object",
            found=type(record).__name__,
        )
    return record


def _chat_template(directory: Path) -> str | None:
    # The file of its own wins, as in transformers.
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text("utf-8")
    path = directory / "tokenizer_config.json"
    template = read_json(path).get("chat_template") if path.exists() else None
    if isinstance(template, list):  # several named ones
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template


def _has_tokenizer(directory: Path) -> bool:
    return any((directory / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))


def _special_tokens(directory: Path) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for file_name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = directory / file_name
        for name, token in (read_json(path) if path.exists() else {}).items():
            text = token.get("content") if isinstance(token, dict) else token
            if name.endswith("_token") and isinstance(text, str):
                tokens[name] = text
    return tokens


def _stored(directory: Path) -> dict[str, StoredTensor]:
    if (directory / _WEIGHTS).exists():
        return _file_tensors(directory / _WEIGHTS)
    index_path = directory / _INDEX
    if not index_path.exists():
        raise CheckpointError(
            "checkpoint has no weights",
            where=directory,
            expected=f"{_WEIGHTS} or {_INDEX}",
            advice="save it with transformers' save_pretrained, which writes safetensors",
        )
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError("checkpoint's index has no weight_map", where=index_path)
    stored: dict[str, StoredTensor] = {}
    for file_name in sorted(set(map(str, weight_map.values()))):
        if Path(file_name).name != file_name:
            raise CheckpointError(
                "checkpoint's index leaves its directory", where=index_path, found=file_name
            )
        stored.update(_file_tensors(directory / file_name))
    for name, file_name in weight_map.items():
        if name not in stored or stored[name].path.name != file_name:
            raise CheckpointError(f"tensor {name} is not where the index says", where=directory / file_name)
    return stored


def _file_tensors(path: Path) -> dict[str, StoredTensor]:
    # Imported here: needed to split, never to answer.
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np"):
            pass  # checks the header, and that the tensors fill the file
        with open(path, "rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_bytes))
    except (OSError, SafetensorError) as exc:
        raise CheckpointError(
            "cannot read a safetensors file", where=path, found=str(exc), advice="download it again"
        ) from exc
    header.pop("__metadata__", None)
    return {name: _stored_tensor(path, name, entry, 8 + header_bytes) for name, entry in header.items()}


def _stored_tensor(path: Path, name: str, entry: dict[str, Any], data_start_bytes: int) -> StoredTensor:
    if entry["dtype"] not in _DECODERS:
        raise UnsupportedModelError(
            f"tensor {name} has an unsupported dtype",
            where=path,
            expected=", ".join(_DECODERS),
            found=entry["dtype"],
        )
    item_bytes, decode = _DECODERS[entry["dtype"]]
    shape = tuple(entry["shape"])
    row_bytes = item_bytes * (shape[-1] if shape else 1)
    return StoredTensor(path, data_start_bytes + entry["data_offsets"][0], shape, row_bytes, decode)


def _check_tied(head: StoredTensor, stored: dict[str, StoredTensor], directory: Path) -> None:
    """A head that is stored although it is tied must be the embedding, bit for bit."""
    embedding = stored.get(_EMBEDDING)
    if embedding is None or embedding.shape != head.shape:
        return  # told as a missing or misshapen embedding
    pairs = zip(head.tiles(), embedding.tiles(), strict=True)
    if not all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs):
        raise UnsupportedModelError(
            f"tensor {_HEAD} differs from the embedding, though tie_word_embeddings is true",
            where=directory,
            advice="set tie_word_embeddings to false if the head is meant to be its own",
        )
