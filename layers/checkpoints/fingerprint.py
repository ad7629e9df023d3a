# SPDX-License-Identifier: Apache-2.0
"""Tells a checkpoint from another of the same name, without reading its weights.

A fingerprint is a SHA-256 of the name, size and time of change of every file that a split may read: a line
each, in order of their names. A checkpoint that was copied anew counts as another one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from quickthaw.layers.errors import CheckpointError

_SUFFIXES = frozenset((".gguf", ".jinja", ".json", ".model", ".safetensors", ".txt"))


def fingerprint(path: Path) -> str:
    """The fingerprint of a Hugging Face directory or a GGUF file. Raises: CheckpointError."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        lines = [_line(file) for file in files if file == path or file.suffix in _SUFFIXES]
    except OSError as exc:
        raise CheckpointError(
            "no such checkpoint",
            where=exc.filename or path,
            expected="a Hugging Face directory, a GGUF file, or the word smollm2",
            found=exc.strerror,
        ) from exc
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _line(file: Path) -> str:
    status = file.stat()
    return f"{file.name} {status.st_size} {status.st_mtime_ns}\n"
