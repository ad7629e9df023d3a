# SPDX-License-Identifier: Apache-2.0
"""Tiny shard sets for the tests, and ways to damage them."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quickthaw.layers import manifest
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.config import LayersConfig
from tests import models
from tests.golden.tokenizer_models import byte_level
from tests.unit.layers.text.chat_templates import SMOLLM2


def make(directory: Path, name: str = "llama", dtype: str = "f32") -> Path:
    """The shard set of a tiny checkpoint, in `directory`/shards."""
    config = models.config(name)
    source = models.write_checkpoint(directory / "source", config, models.tensors(config))
    return split_into(source, directory / "shards", dtype)


def make_chat(directory: Path) -> Path:
    """The same for a model named tiny that has a tokenizer and a chat template."""
    tokenizer = byte_level("smollm")
    config = models.config("llama-tied", vocab_size=tokenizer.get_vocab_size(), eos_token_id=2)
    source = models.write_checkpoint(directory / "tiny", config, models.tensors(config))
    tokenizer.save(str(source / "tokenizer.json"))
    tokens = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": SMOLLM2, **tokens}))
    return split_into(source, directory / "shards")


def split_into(source: Path, out: Path, dtype: str = "f32") -> Path:
    """The shard set of `source`, in `out`."""
    split(str(source), out, dtype=dtype)
    return out


def config(directory: Path, verify: str = "first") -> LayersConfig:
    """A configuration whose cache lies in `directory`."""
    return LayersConfig.from_env({"QUICKTHAW_CACHE": str(directory / "cache"), "QUICKTHAW_VERIFY": verify})


def edit_manifest(shards: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest's JSON in place, and its CRC with it."""
    path = shards / manifest.FILE_NAME
    record = json.loads(path.read_text())
    del record["crc32"]
    change(record)
    path.write_bytes(manifest.encode(record))


def add_tokenizer(shards: Path, data: bytes | None = None) -> Path:
    """Puts a file of tables into the set, or none but an entry for one."""
    path = shards / manifest.TOKENIZER_FILE_NAME
    if data is not None:
        path.write_bytes(data)
    entry = {
        "file": path.name,
        "size_bytes": len(data or b"."),
        "sha256": hashlib.sha256(data or b".").hexdigest(),
        "n_tokens": 1,
        "adds_bos": False,
        "adds_eos": False,
    }
    edit_manifest(shards, lambda record: record.update(tokenizer=entry))
    return path


def settle(path: Path) -> None:
    """Returns once the last change of a file is long enough ago for a verified file to be remembered."""
    while time.time_ns() - path.stat().st_ctime_ns <= 60_000_000:
        time.sleep(0.005)


def drop_from_memory(*paths: Path) -> None:
    """Has the page cache let go of files; what is mapped stays."""
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sha256(path: Path) -> str:
    """A file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip_bit(path: Path, offset: int = -1) -> None:
    """Damages one bit, of the last byte unless told."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
