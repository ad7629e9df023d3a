# SPDX-License-Identifier: Apache-2.0
"""Splits a checkpoint into a shard set: the policy of what is written, when, and what may be replaced."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quickthaw.layers import manifest
from quickthaw.layers.architecture import ModelConfig, embedding_tensors, layer_tensors
from quickthaw.layers.checkpoints import shard_file, smollm2
from quickthaw.layers.checkpoints.fingerprint import fingerprint
from quickthaw.layers.checkpoints.gguf_source import open_gguf
from quickthaw.layers.checkpoints.hugging_face_source import open_checkpoint
from quickthaw.layers.checkpoints.output import Wanted, existing
from quickthaw.layers.checkpoints.quantizer import Loss, quantised
from quickthaw.layers.checkpoints.shard_file import NewTensor
from quickthaw.layers.checkpoints.source import ShardParts, Source
from quickthaw.layers.checkpoints.staging import Staging
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.errors import CheckpointError, SplitError
from quickthaw.layers.manifest import Manifest
from quickthaw.layers.matrix_dtype import (
    DTYPES,
    GROUP_COLUMNS,
    embedding_dtype,
    is_quantised,
    size_bytes,
    stored_tensors,
)
from quickthaw.layers.progress import Progress, Quiet
from quickthaw.layers.text import chat, tokenizer_source


class SplitReport(NamedTuple):
    """What a split did: the shard set now in `out`, whether it was there already, and what to know of it."""

    out: Path
    manifest: Manifest
    was_whole: bool
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """All shards together."""
        return sum(shard.size_bytes for shard in self.manifest.shards)


def split(
    source: str, out: Path, *, dtype: str = "bf16", force: bool = False, progress: Progress | None = None
) -> SplitReport:
    """Makes `out` the shard set of `source`: a Hugging Face directory, a GGUF file, or the word smollm2.

    Atomic: killed at any moment, `out` is as it was before, absent, or whole. A whole shard set of the same
    checkpoint and dtype is left alone unless `force`.

    Raises: CheckpointError, UnsupportedModelError, UnsupportedTokenizerError, SplitError.
    """
    if dtype not in DTYPES:
        raise SplitError("unknown dtype", expected=", ".join(DTYPES), found=repr(dtype))
    progress = Quiet() if progress is None else progress
    wanted = _wanted(source, dtype)
    staging = Staging(out)
    if (found := existing(out, wanted, force)) is not None:
        _tidy(staging)
        return SplitReport(out, found, was_whole=True)
    checkpoint = open_source(source)
    _check_groups(checkpoint.model, dtype)
    loss = Loss()
    with staging:
        # Once more, under the lock: another split may have finished in between.
        if (found := existing(out, wanted, force)) is not None:
            return SplitReport(out, found, was_whole=True)
        try:
            progress.start(_size_bytes(checkpoint.model, dtype))
            written = _write(checkpoint, wanted, staging.directory, progress, loss)
        finally:
            progress.finish()
        staging.commit()
    cost = f"{dtype} changed the weights by {loss.relative:.2%} (root mean square)"
    notes = (*checkpoint.notes, cost) if is_quantised(dtype) else checkpoint.notes
    return SplitReport(out, written, was_whole=False, notes=notes)


def _tidy(staging: Staging) -> None:
    """Removes what a killed split left, unless one is at work, or nothing may be written here."""
    if staging.has_leftovers():
        with suppress(SplitError), staging:
            pass


def open_source(source: str) -> Source:
    """Raises: CheckpointError, UnsupportedModelError."""
    path = smollm2.locate(Path(LayersConfig.from_env().cache)) if source == smollm2.WORD else Path(source)
    if path.is_dir():
        return open_checkpoint(path)
    if path.is_file():
        return open_gguf(path)
    raise CheckpointError(
        "no such checkpoint",
        where=path,
        expected="a Hugging Face directory, a GGUF file, or the word smollm2",
    )


def _wanted(source: str, dtype: str) -> Wanted:
    """What a split of `source` makes, named as its directory or file: people name these as publishers do.

    Raises: CheckpointError.
    """
    if source == smollm2.WORD:
        return Wanted(smollm2.NAME, smollm2.SHA256, dtype)  # known without the file being here
    path = Path(source)
    return Wanted(path.resolve().name.removesuffix(".gguf"), fingerprint(path), dtype)


def _size_bytes(model: ModelConfig, dtype: str) -> int:
    """About how much will be written; biases that the model may lack count for nothing beside matrices."""
    shards = [(embedding_tensors(model), embedding_dtype(dtype))]
    shards += [(layer_tensors(model), dtype)] * model.n_layers
    return sum(
        size_bytes(described)
        for table, shard_dtype in shards
        for name, fused in table.items()
        if fused.n_columns
        for described in stored_tensors(name, fused.shape, shard_dtype).values()
    )


def _check_groups(model: ModelConfig, dtype: str) -> None:
    """Raises: SplitError where a row is no whole number of groups."""
    group = GROUP_COLUMNS.get(dtype, 1)
    for name, fused in layer_tensors(model).items():
        if fused.n_columns is not None and fused.n_columns % group:
            raise SplitError(
                f"the rows of {name} cannot be cut into groups",
                expected=f"a multiple of {group} columns",
                found=fused.n_columns,
                advice="split with another --dtype: int4 has groups of 32, int8 has none",
            )


def _write(checkpoint: Source, wanted: Wanted, directory: Path, progress: Progress, loss: Loss) -> Manifest:
    # First, because a tokenizer that is refused should be refused before gigabytes are written.
    tokenizer = _write_tokenizer(checkpoint, directory)
    try:
        shards = tuple(
            shard_file.write(
                directory / manifest.shard_file_name(index),
                _new_tensors(parts, wanted.dtype if index else embedding_dtype(wanted.dtype), loss),
                progress.advance,
            )
            for index, parts in enumerate(checkpoint.shards)
        )
    except OverflowError as exc:
        raise SplitError(
            f"a weight is too large for {wanted.dtype}", found=str(exc), advice="split with --dtype f32"
        ) from exc
    written = Manifest(
        name=wanted.name,
        source=wanted.source,
        model=checkpoint.model,
        dtype=wanted.dtype,
        tokenizer=tokenizer,
        chat_template=_chat_template(checkpoint),
        eos_token_ids=checkpoint.eos_token_ids,
        shards=shards,
    )
    _write_synced(directory / manifest.FILE_NAME, manifest.encode(written.to_json()))
    return written


def _new_tensors(parts: ShardParts, dtype: str, loss: Loss) -> list[NewTensor]:
    tensors: list[NewTensor] = []
    for name, stored in parts.items():
        shape = (sum(part.shape[0] for part in stored), *stored[0].shape[1:])
        tiles = (tile for part in stored for tile in part.tiles())
        if len(shape) == 2 and is_quantised(dtype):
            tensors += quantised(name, shape, dtype, tiles, loss)
        else:
            tensors.append(NewTensor(name, *stored_tensors(name, shape, dtype)[name], tiles))
    return tensors


def _write_tokenizer(checkpoint: Source, directory: Path) -> dict[str, Any] | None:
    if checkpoint.tokenizer is None:
        return None
    path = directory / manifest.TOKENIZER_FILE_NAME
    with open(path, "xb") as file:
        info = tokenizer_source.write_tables(checkpoint.tokenizer, file)
        file.flush()
        os.fsync(file.fileno())
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    record = {"file": path.name, "size_bytes": path.stat().st_size, "sha256": sha256}
    return {**record, "n_tokens": info.n_tokens, "adds_bos": info.adds_bos, "adds_eos": info.adds_eos}


def _chat_template(checkpoint: Source) -> dict[str, Any] | None:
    if checkpoint.chat_template is None:
        return None
    program = chat.prepare(checkpoint.chat_template)
    return {"source": checkpoint.chat_template, "program": program, **checkpoint.special_tokens}


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
