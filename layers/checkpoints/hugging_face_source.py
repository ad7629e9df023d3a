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

from quickthaw.layers.checkpoints import json_file
from quickthaw.layers.checkpoints.hugging_face_config import declared_biases, from_hugging_face
from quickthaw.layers.checkpoints.hugging_face_generation import end_token_ids, notes
from quickthaw.layers.checkpoints.hugging_face_text import chat_template, has_tokenizer, special_tokens
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
    config = json_file.read(directory / "config.json")
    model = from_hugging_face(config)
    generation_path = directory / "generation_config.json"
    # Without that file transformers takes these settings from config.json.
    generation = json_file.read(generation_path) if generation_path.exists() else config
    eos_token_ids = end_token_ids(generation, model)
    stored = {name: tensor for name, tensor in _stored(directory).items() if not _DERIVED.fullmatch(name)}
    if model.tied_head and _HEAD in stored:
        _check_tied(stored.pop(_HEAD), stored, directory)
    return Source(
        model=model,
        eos_token_ids=eos_token_ids,
        tokenizer=directory if has_tokenizer(directory) else None,
        chat_template=chat_template(directory),
        special_tokens=special_tokens(directory),
        shards=arrange(model, stored, NAMES, declared_biases(config), directory),
        notes=tuple(notes(generation, "config.json" if generation is config else generation_path.name)),
    )


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
    weight_map = json_file.read(index_path).child("weight_map")
    files = {name: weight_map.text(name) for name in weight_map}
    stored: dict[str, StoredTensor] = {}
    for file_name in sorted(set(files.values())):
        if Path(file_name).name != file_name:
            raise CheckpointError(
                "checkpoint's index leaves its directory", where=index_path, found=file_name
            )
        stored.update(_file_tensors(directory / file_name))
    for name, file_name in files.items():
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
    return StoredTensor(name, path, data_start_bytes + entry["data_offsets"][0], shape, row_bytes, decode)


def _check_tied(head: StoredTensor, stored: dict[str, StoredTensor], directory: Path) -> None:
    """A head that is stored although it is tied must be the embedding, bit for bit."""
    embedding = stored.get(_EMBEDDING)
    if embedding is None or embedding.shape != head.shape:
        return  # told as a missing or misshapen embedding
    pairs = zip(head.tiles(), embedding.tiles(), strict=True)
    if not all(np.array_equal(ours, theirs) for ours, theirs in pairs):
        raise UnsupportedModelError(
            f"tensor {_HEAD} differs from the embedding, though tie_word_embeddings is true",
            where=directory,
            advice="set tie_word_embeddings to false if the head is meant to be its own",
        )
