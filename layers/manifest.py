# SPDX-License-Identifier: Apache-2.0
"""manifest.json: what a shard set holds, checked before a byte of it is trusted.

    {"format": "quickthaw-shards", "version": 1 | 2, "dtype": …,
     "model": {"name": …, "source": …, "config": {…ModelConfig…}},
     "tokenizer": {"file", "size_bytes", "sha256", "n_tokens", "adds_bos", "adds_eos"} | null,
     "chat_template": {"source", "program", …} | null,
     "generation": {"eos_token_ids": […]},
     "shards": [{"file", "size_bytes", "sha256", "tensors": {name: {"dtype", "shape", "offset"}}}, …],
     "crc32":"12345678"}

The CRC, in hexadecimal, is of every byte before its comma: a manifest is what `quickthaw shard` wrote, to the
byte. It guards against damage, as a SHA-256 would, without hashlib, whose import costs a start 3 ms.
Version 2 is that of sets in int8 and int4, which earlier readers would not know what to make of.
`model.source` is a fingerprint of the checkpoint (`checkpoints/fingerprint.py`). `shards[0]` is the embedding
shard and `shards[1 + k]` is layer k.
"""

from __future__ import annotations

import json
from binascii import crc32  # zlib's is the same, and takes longer to import
from typing import TYPE_CHECKING, Any, NamedTuple

from quickthaw.layers.architecture import (
    ModelConfig,
    embedding_tensors,
    end_tokens_problem,
    layer_tensors,
    required_layer_tensors,
)
from quickthaw.layers.errors import ManifestError, ManifestVersionError, ShardError
from quickthaw.layers.matrix_dtype import DTYPES, embedding_dtype, is_quantised
from quickthaw.layers.record import Record
from quickthaw.layers.shard_entry import RESPLIT, ShardEntry
from quickthaw.layers.storage.storage import Storage, is_remote, open_storage

if TYPE_CHECKING:
    from _typeshed import StrPath

FILE_NAME = "manifest.json"
TOKENIZER_FILE_NAME = "tokenizer.bin"
FORMAT = "quickthaw-shards"
VERSION = 2
_FIELDS = frozenset(
    ("format", "version", "dtype", "model", "tokenizer", "chat_template", "generation", "shards", "crc32")
)
_TOKENIZER_FIELDS = frozenset(("file", "size_bytes", "sha256", "n_tokens", "adds_bos", "adds_eos"))
SIZE_LIMIT_BYTES = 256 << 20  # far above the largest real one; keeps a wrong file from being parsed whole


class SetFile(NamedTuple):
    """A file of the set, beside the manifest: plain names of our own making."""

    name: str
    size_bytes: int
    sha256: str


class Manifest(NamedTuple):
    """A shard set's description; `tokenizer` and `chat_template` are JSON objects that their modules read."""

    name: str
    source: str
    model: ModelConfig
    dtype: str
    tokenizer: dict[str, Any] | None
    chat_template: dict[str, Any] | None
    eos_token_ids: tuple[int, ...]
    shards: tuple[ShardEntry, ...]

    @property
    def files(self) -> list[SetFile]:
        """Every file but the manifest: the shards, the tokenizer's tables."""
        files = [SetFile(shard.file, shard.size_bytes, shard.sha256) for shard in self.shards]
        if self.tokenizer is not None:
            files.append(SetFile(*(self.tokenizer[key] for key in ("file", "size_bytes", "sha256"))))
        return files

    def to_json(self) -> dict[str, Any]:
        """The object that manifest.json holds, without its CRC."""
        return {
            "format": FORMAT,
            "version": _version(self.dtype),
            "dtype": self.dtype,
            "model": {"name": self.name, "source": self.source, "config": self.model.to_json()},
            "tokenizer": self.tokenizer,
            "chat_template": self.chat_template,
            "generation": {"eos_token_ids": list(self.eos_token_ids)},
            "shards": [shard.to_json() for shard in self.shards],
        }


def _version(dtype: str) -> int:
    return VERSION if is_quantised(dtype) else 1


def encode(record: dict[str, Any]) -> bytes:
    """The bytes of a manifest.json that holds what `Manifest.to_json` made, and its CRC."""
    body = json.dumps(record, separators=(",", ":")).encode()[:-1]
    return body + _tail(body)


def _tail(body: bytes) -> bytes:
    return b',"crc32":"%08x"}' % crc32(body)


def shard_file_name(index: int) -> str:
    """The file of `shards[index]`."""
    return "embedding.safetensors" if index == 0 else f"layer-{index - 1:03d}.safetensors"


def read(location: StrPath) -> Manifest:
    """The manifest of the shard set that lies there.

    Raises: ManifestError, ManifestVersionError, ShardError.
    """
    return read_from(open_storage(location))


def read_from(storage: Storage) -> Manifest:
    """The manifest of the shard set in a storage.

    Raises: ManifestError, ManifestVersionError; ShardError where a storage that is no directory gives none.
    """
    path = f"{storage.location}/{FILE_NAME}"
    try:
        data = storage.read(FILE_NAME, SIZE_LIMIT_BYTES + 1)
    except ShardError as exc:
        if is_remote(storage.location):
            raise  # its storage says it best: permission, credentials, a server that fails
        raise ManifestError(
            "cannot read the manifest of a shard set",
            where=exc.where,
            found=exc.found,
            advice="point QUICKTHAW_SHARDS at a directory made by `quickthaw shard`",
        ) from exc
    if len(data) > SIZE_LIMIT_BYTES:
        raise ManifestError(
            "manifest is absurdly large", where=path, expected=f"at most {SIZE_LIMIT_BYTES} bytes"
        )
    return parse(data, path)


def parse(data: bytes, path: str) -> Manifest:
    """The manifest in `data`; `path` is named in errors.

    Raises: ManifestError, ManifestVersionError.
    """
    try:
        record = Record(json.loads(data), path, ManifestError)
    except (ValueError, RecursionError) as exc:
        raise ManifestError("manifest is no JSON", where=path, found=str(exc), advice=RESPLIT) from exc
    _check_format(record, path)
    body = data[: -len(_tail(b""))]
    if data != body + _tail(body):
        raise ManifestError(
            "manifest is damaged: it has not the CRC that it ends with", where=path, advice=RESPLIT
        )
    return _manifest(record.exactly(_FIELDS), path)


def _check_format(record: Record, path: str) -> None:
    if (found := record.text("format")) != FORMAT:
        raise ManifestError("not a shard set's manifest", where=path, expected=FORMAT, found=found)
    version = record.integer("version")
    if version < 1:
        raise record.unusable("version", f"1 to {VERSION}")
    if version > VERSION:
        raise ManifestVersionError(
            "shard set has a newer format",
            where=path,
            expected=f"version {VERSION}",
            found=f"version {version}",
            advice="upgrade quickthaw, or split the checkpoint again with this version",
        )


def _manifest(record: Record, path: str) -> Manifest:
    if record.text("dtype") not in DTYPES:
        raise record.unusable("dtype", ", ".join(DTYPES))
    if record.integer("version") != _version(record.text("dtype")):
        raise record.unusable("version", f"{_version(record.text('dtype'))} for {record.text('dtype')}")
    described = record.child("model").exactly({"name", "source", "config"})
    generation = record.child("generation").exactly({"eos_token_ids"})
    try:
        model = ModelConfig.from_json(described.child("config"))
    except ValueError as exc:
        raise ManifestError("manifest describes an impossible model", where=path, found=str(exc)) from exc
    manifest = Manifest(
        name=described.text("name"),
        source=described.text("source"),
        model=model,
        dtype=record.text("dtype"),
        tokenizer=_tokenizer(record.child("tokenizer")) if "tokenizer" in record else None,
        chat_template=_chat_template(record.child("chat_template")) if "chat_template" in record else None,
        eos_token_ids=generation.integers("eos_token_ids"),
        shards=tuple(map(ShardEntry.from_json, record.children("shards"))),
    )
    if problem := end_tokens_problem(manifest.eos_token_ids, model.vocab_size):
        raise generation.unusable("eos_token_ids", problem)
    _check_shards(manifest, path)
    return manifest


def _tokenizer(record: Record) -> dict[str, Any]:
    if record.text("file") != TOKENIZER_FILE_NAME:
        raise record.unusable("file", TOKENIZER_FILE_NAME)
    record.exactly(_TOKENIZER_FIELDS)
    return {
        "file": TOKENIZER_FILE_NAME,
        "size_bytes": record.integer("size_bytes"),
        "sha256": record.sha256("sha256"),
        "n_tokens": record.integer("n_tokens"),
        "adds_bos": record.flag("adds_bos"),
        "adds_eos": record.flag("adds_eos"),
    }


def _chat_template(record: Record) -> dict[str, Any]:
    program = record.items("program") if "program" in record else None
    tokens = {key: record.text(key) for key in record if key not in ("source", "program")}
    return {"source": record.text("source"), "program": program, **tokens}


def _check_shards(manifest: Manifest, path: str) -> None:
    n_shards = manifest.model.n_layers + 1
    if len(manifest.shards) != n_shards:
        raise ManifestError(
            "manifest lists the wrong number of shards",
            where=path,
            expected=n_shards,
            found=len(manifest.shards),
            advice=RESPLIT,
        )
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
                advice=RESPLIT,
            )
        if index == 0:
            shard.check(embedding, frozenset(embedding), embedding_dtype(manifest.dtype), path)
        else:
            shard.check(layer, required, manifest.dtype, path)
