# SPDX-License-Identifier: Apache-2.0
"""manifest.json: what a shard set holds, checked before a byte of it is trusted.

    {"format": "quickthaw-shards", "version": 1, "dtype": "bf16" | "f32",
     "model": {"name": …, "config": {…ModelConfig…}},
     "tokenizer": {"file", "size_bytes", "sha256", …} | null,
     "chat_template": {"source", "program", …} | null,
     "generation": {"eos_token_ids": […]},
     "shards": [{"file", "size_bytes", "sha256", "tensors": {name: {"dtype", "shape", "offset"}}}, …]}

`shards[0]` is the embedding shard and `shards[1 + k]` is layer k. An offset counts bytes from the start of
the file. Matrices have the set's dtype, vectors are F32 always, and every tensor starts on 64 bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from quickthaw.layers.architecture import (
    FusedShape,
    ModelConfig,
    embedding_tensors,
    layer_tensors,
    required_layer_tensors,
)
from quickthaw.layers.errors import ManifestError, ManifestVersionError

if TYPE_CHECKING:
    from _typeshed import StrPath

FILE_NAME = "manifest.json"
TOKENIZER_FILE_NAME = "tokenizer.bin"
FORMAT = "quickthaw-shards"
VERSION = 1
ALIGNMENT_BYTES = 64  # a cache line, and the widest vector register
ITEM_BYTES = {"BF16": 2, "F32": 4}
MATRIX_DTYPES = {"bf16": "BF16", "f32": "F32"}
_SIZE_LIMIT_BYTES = 256 << 20  # far above the largest real one; keeps a wrong file from being parsed whole
_RESPLIT = "the shard set is damaged: make it again with `quickthaw shard`"


class TensorEntry(NamedTuple):
    """Where one tensor lies in its shard's file."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


class ShardEntry(NamedTuple):
    """One shard's file, and the tensors in it."""

    file: str
    size_bytes: int
    sha256: str
    tensors: dict[str, TensorEntry]


class Manifest(NamedTuple):
    """A shard set's description; `tokenizer` and `chat_template` are JSON objects that their modules read."""

    name: str
    model: ModelConfig
    dtype: str
    tokenizer: dict[str, Any] | None
    chat_template: dict[str, Any] | None
    eos_token_ids: tuple[int, ...]
    shards: tuple[ShardEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """The object written to manifest.json."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "dtype": self.dtype,
            "model": {"name": self.name, "config": self.model.to_json()},
            "tokenizer": self.tokenizer,
            "chat_template": self.chat_template,
            "generation": {"eos_token_ids": list(self.eos_token_ids)},
            "shards": [_shard_record(shard) for shard in self.shards],
        }


def _shard_record(shard: ShardEntry) -> dict[str, Any]:
    tensors = {
        name: {"dtype": entry.dtype, "shape": list(entry.shape), "offset": entry.offset_bytes}
        for name, entry in shard.tensors.items()
    }
    return {"file": shard.file, "size_bytes": shard.size_bytes, "sha256": shard.sha256, "tensors": tensors}


def shard_file_name(index: int) -> str:
    """The file of `shards[index]`."""
    return "embedding.safetensors" if index == 0 else f"layer-{index - 1:03d}.safetensors"


def read(directory: StrPath) -> Manifest:
    """The manifest of the shard set in `directory`.

    Raises: ManifestError, ManifestVersionError.
    """
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path, "rb") as file:
            data = file.read(_SIZE_LIMIT_BYTES + 1)
    except OSError as exc:
        raise ManifestError(
            "cannot read the manifest of a shard set",
            where=path,
            found=exc.strerror,
            advice="point QUICKTHAW_SHARDS at a directory made by `quickthaw shard`",
        ) from exc
    if len(data) > _SIZE_LIMIT_BYTES:
        raise ManifestError(
            "manifest is absurdly large", where=path, expected=f"at most {_SIZE_LIMIT_BYTES} bytes"
        )
    return parse(data, path)


def parse(data: bytes, path: str) -> Manifest:
    """The manifest in `data`; `path` is named in errors.

    Raises: ManifestError, ManifestVersionError.
    """
    try:
        record = json.loads(data)
        _check_format(record, path)
        return _manifest(record, path)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        reason = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
        raise ManifestError("manifest is malformed", where=path, found=reason, advice=_RESPLIT) from exc


def _check_format(record: Mapping[str, Any], path: str) -> None:
    if record["format"] != FORMAT:
        raise ManifestError("not a shard set's manifest", where=path, expected=FORMAT, found=record["format"])
    version = record["version"]
    if type(version) is not int or version < 1:
        raise ManifestError("manifest has no version", where=path, found=repr(version), advice=_RESPLIT)
    if version > VERSION:
        raise ManifestVersionError(
            "shard set has a newer format",
            where=path,
            expected=f"version {VERSION}",
            found=f"version {version}",
            advice="upgrade quickthaw, or split the checkpoint again with this version",
        )


def _manifest(record: Mapping[str, Any], path: str) -> Manifest:
    model = ModelConfig.from_json(record["model"]["config"])
    if record["dtype"] not in MATRIX_DTYPES:
        raise ManifestError(
            "unknown dtype of a shard set", where=path, expected="bf16 or f32", found=record["dtype"]
        )
    shards = tuple(map(_shard_entry, record["shards"]))
    if len(shards) != model.n_layers + 1:
        raise ManifestError(
            "manifest lists the wrong number of shards",
            where=path,
            expected=model.n_layers + 1,
            found=len(shards),
            advice=_RESPLIT,
        )
    manifest = Manifest(
        name=str(record["model"]["name"]),
        model=model,
        dtype=record["dtype"],
        tokenizer=record["tokenizer"],
        chat_template=record["chat_template"],
        eos_token_ids=tuple(map(int, record["generation"]["eos_token_ids"])),
        shards=shards,
    )
    _check_tokenizer(manifest.tokenizer, path)
    _check_shards(manifest, path)
    return manifest


def _check_tokenizer(tokenizer: object, path: str) -> None:
    if tokenizer is None:
        return
    if not isinstance(tokenizer, dict) or tokenizer["file"] != TOKENIZER_FILE_NAME:
        raise ManifestError(
            "tokenizer has the wrong file name", where=path, expected=TOKENIZER_FILE_NAME, advice=_RESPLIT
        )
    if type(tokenizer["size_bytes"]) is not int or type(tokenizer["sha256"]) is not str:
        raise ManifestError("tokenizer has no size or digest", where=path, advice=_RESPLIT)


def _shard_entry(record: Mapping[str, Any]) -> ShardEntry:
    tensors = {
        name: TensorEntry(entry["dtype"], tuple(entry["shape"]), entry["offset"])
        for name, entry in record["tensors"].items()
    }
    return ShardEntry(record["file"], record["size_bytes"], record["sha256"], tensors)


def _check_shards(manifest: Manifest, path: str) -> None:
    embedding = embedding_tensors(manifest.model)
    layer, required = layer_tensors(manifest.model), required_layer_tensors(manifest.model)
    for index, shard in enumerate(manifest.shards):
        # Plain names of our own making: a manifest cannot lead outside its directory.
        if shard.file != shard_file_name(index):
            raise ManifestError(
                f"shard {index} has the wrong file name",
                where=path,
                expected=shard_file_name(index),
                found=repr(shard.file),
                advice=_RESPLIT,
            )
        if type(shard.size_bytes) is not int or type(shard.sha256) is not str or len(shard.sha256) != 64:
            raise ManifestError("shard has no size or digest", where=f"{path}, {shard.file}", advice=_RESPLIT)
        if index == 0:
            _check_tensors(shard, embedding, frozenset(embedding), manifest.dtype, path)
        else:
            _check_tensors(shard, layer, required, manifest.dtype, path)


def _check_tensors(
    shard: ShardEntry, table: dict[str, FusedShape], required: frozenset[str], dtype: str, path: str
) -> None:
    names = shard.tensors.keys()
    if not required <= names <= table.keys():
        odd = sorted((required - names) or (names - table.keys()))
        problem = "lacks" if required - names else "has unknown"
        raise ManifestError(
            f"shard {problem} tensors", where=f"{path}, {shard.file}", found=", ".join(odd), advice=_RESPLIT
        )
    end_bytes = 0
    for name, entry in sorted(shard.tensors.items(), key=lambda item: item[1].offset_bytes):
        shape = table[name].shape
        expected = (MATRIX_DTYPES[dtype] if len(shape) == 2 else "F32", shape)
        if entry[:2] != expected:
            raise _tensor_error("has the wrong dtype or shape", path, shard, name, expected, entry[:2])
        n_bytes = ITEM_BYTES[entry.dtype]
        for n_items in shape:
            n_bytes *= n_items
        offset = entry.offset_bytes
        if type(offset) is not int or offset % ALIGNMENT_BYTES:
            raise _tensor_error(
                "is not aligned", path, shard, name, f"a multiple of {ALIGNMENT_BYTES}", offset
            )
        if offset < end_bytes:
            raise _tensor_error("overlaps another", path, shard, name, f"an offset from {end_bytes}", offset)
        end_bytes = offset + n_bytes
        if end_bytes > shard.size_bytes:
            raise _tensor_error(
                "lies outside its file", path, shard, name, f"an end up to {shard.size_bytes}", end_bytes
            )


def _tensor_error(
    problem: str, path: str, shard: ShardEntry, name: str, expected: object, found: object
) -> ManifestError:
    return ManifestError(
        f"tensor {name} {problem}",
        where=f"{path}, {shard.file}",
        expected=expected,
        found=found,
        advice=_RESPLIT,
    )
