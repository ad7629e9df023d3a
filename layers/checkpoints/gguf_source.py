# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as a source of shards: any type that the gguf package dequantises, a tile of rows at a time.

llama.cpp rotates neighbouring pairs of a head's rows where we rotate its halves, so its converter interleaves
the rows of q and k for the llama architecture; here that is undone:

    GGUF rows of a head   0 1 2 3 4 5 …      ours   0 2 4 … 1 3 5 …
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.checkpoints import gguf_config, gguf_file
from quickthaw.layers.checkpoints.gguf_file import GgufFile, GgufTensor
from quickthaw.layers.checkpoints.shard_file import Tile
from quickthaw.layers.checkpoints.source import Decode, Names, Source, StoredTensor, arrange
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError
from quickthaw.layers.record import Record

_TOKENS, _CHAT_TEMPLATE = "tokenizer.ggml.tokens", "tokenizer.chat_template"
_ROPE_FACTORS = "rope_freqs.weight"
_SPECIAL_TOKENS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}

NAMES = Names(
    embedding={
        "embedding": ("token_embd.weight",),
        "norm": ("output_norm.weight",),
        "head": ("output.weight",),
    },
    layer={
        "attn_norm": ("blk.{}.attn_norm.weight",),
        "qkv": ("blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight"),
        "qkv_bias": ("blk.{}.attn_q.bias", "blk.{}.attn_k.bias", "blk.{}.attn_v.bias"),
        "q_norm": ("blk.{}.attn_q_norm.weight",),
        "k_norm": ("blk.{}.attn_k_norm.weight",),
        "attn_out": ("blk.{}.attn_output.weight",),
        "attn_out_bias": ("blk.{}.attn_output.bias",),
        "ffn_norm": ("blk.{}.ffn_norm.weight",),
        "gate_up": ("blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight"),
        "gate_up_bias": ("blk.{}.ffn_gate.bias", "blk.{}.ffn_up.bias"),
        "down": ("blk.{}.ffn_down.weight",),
        "down_bias": ("blk.{}.ffn_down.bias",),
    },
)


def open_gguf(path: Path) -> Source:
    """Raises: CheckpointError, UnsupportedModelError."""
    file = gguf_file.read(path)
    metadata = Record(file.metadata, path, CheckpointError)
    if "split.count" in metadata and metadata.integer("split.count") > 1:
        raise UnsupportedModelError(
            "GGUF file is one of several parts",
            where=path,
            advice="join them with llama.cpp's gguf-split --merge",
        )
    stored = {name: _stored(path, file, name, tensor) for name, tensor in file.tensors.items()}
    factors = stored.pop(_ROPE_FACTORS, None)
    rope_factors = None if factors is None else tuple(np.concatenate(list(factors.tiles()), None).tolist())
    model = gguf_config.from_gguf(metadata, frozenset(stored), rope_factors)
    if model.family == "llama":
        stored = {name: _uninterleaved(name, tensor, model) for name, tensor in stored.items()}
    return Source(
        model=model,
        eos_token_ids=model.eos_token_ids,
        tokenizer=file.metadata if _TOKENS in metadata else None,
        chat_template=metadata.text(_CHAT_TEMPLATE) if _CHAT_TEMPLATE in metadata else None,
        special_tokens=_special_tokens(metadata),
        shards=arrange(model, stored, NAMES, None, path),
    )


def _special_tokens(metadata: Record) -> dict[str, str]:
    tokens = metadata.items(_TOKENS) if _TOKENS in metadata else []
    keys = {name: f"tokenizer.ggml.{key}_token_id" for name, key in _SPECIAL_TOKENS.items()}
    ids = {name: metadata.integer(key) for name, key in keys.items() if key in metadata}
    return {name: str(tokens[index]) for name, index in ids.items() if 0 <= index < len(tokens)}


def _stored(path: Path, file: GgufFile, name: str, tensor: GgufTensor) -> StoredTensor:
    block_items, block_bytes, decode = _codec(tensor.type_id, name, path)
    n_columns = tensor.shape[-1] if tensor.shape else 0
    if not 1 <= len(tensor.shape) <= 2 or n_columns == 0 or n_columns % block_items:
        raise CheckpointError(
            f"tensor {name} has an impossible shape",
            where=path,
            expected=f"rows of a multiple of {block_items} values",
            found=tensor.shape,
        )
    row_bytes = n_columns // block_items * block_bytes
    end_bytes = tensor.offset_bytes + row_bytes * (tensor.shape[0] if len(tensor.shape) == 2 else 1)
    if end_bytes > file.size_bytes:
        raise CheckpointError(
            f"GGUF file ends before tensor {name} does",
            where=path,
            expected=f"at least {end_bytes} bytes",
            found=file.size_bytes,
            advice="download it again",
        )
    return StoredTensor(name, path, tensor.offset_bytes, tensor.shape, row_bytes, decode)


def _codec(type_id: int, name: str, path: Path) -> tuple[int, int, Decode]:
    """The values and bytes of a block of a ggml type, and the function that dequantises rows of blocks."""
    # Imported here: needed to split, never to answer.
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        kind = GGMLQuantizationType(type_id)
        block_items, block_bytes = GGML_QUANT_SIZES[kind]
        dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except (ValueError, KeyError, NotImplementedError) as exc:
        raise UnsupportedModelError(
            f"tensor {name} has a type that cannot be dequantised", where=path, found=str(exc)
        ) from exc

    def decode(rows: npt.NDArray[np.uint8]) -> Tile:
        values: Tile = dequantize(rows, kind).astype(np.float32, copy=False)
        return values

    return block_items, block_bytes, decode


def _uninterleaved(name: str, tensor: StoredTensor, model: ModelConfig) -> StoredTensor:
    if not name.endswith(("attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias")):
        return tensor
    half = model.head_dim // 2

    def reorder(tile: Tile) -> Tile:
        pairs = tile.reshape(-1, half, 2, *tile.shape[1:])  # (heads, half, 2[, columns])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(tile.shape)

    return tensor._replace(reorder=reorder, group_rows=model.head_dim)
