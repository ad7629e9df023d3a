# SPDX-License-Identifier: Apache-2.0
"""What is in the output directory of a split already, and whether it may be replaced: reads, never writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from quickthaw.layers import manifest
from quickthaw.layers.errors import ManifestError, OutputExistsError
from quickthaw.layers.manifest import Manifest

_OUR_FILES = re.compile(r"embedding\.safetensors|layer-\d{3,}\.safetensors|tokenizer\.bin")


class Wanted(NamedTuple):
    """The shard set that a split is to make; `source` is the fingerprint of the checkpoint."""

    name: str
    source: str
    dtype: str


def existing(out: Path, wanted: Wanted, force: bool) -> Manifest | None:
    """The whole shard set that is in `out` already; None when it must be written.

    Raises: OutputExistsError when what is there must not be replaced.
    """
    names = _names(out)
    if not names:
        return None
    if manifest.FILE_NAME not in names and not all(map(_OUR_FILES.fullmatch, names)):
        raise _no_shard_set(out)
    if force:
        return None
    try:
        found = manifest.read(out)
    except ManifestError as exc:
        raise _damaged(out, str(exc)) from exc
    if not all(_has_size(out / file.name, file.size_bytes) for file in found.files):
        raise _damaged(out, "files that are absent or cut short")
    if (found.name, found.source, found.dtype) != wanted:
        is_other_source = (found.name, found.dtype) == (wanted.name, wanted.dtype)
        raise OutputExistsError(
            "output holds another shard set",
            where=out,
            expected=f"{wanted.name} in {wanted.dtype}, as the checkpoint is now",
            found=f"{found.name} in {found.dtype}{' of another checkpoint' if is_other_source else ''}",
            advice="use --force to replace it",
        )
    return found


def _names(out: Path) -> list[str]:
    """The files in `out`, listed at once: another split may be putting it in place."""
    try:
        return os.listdir(out)
    except FileNotFoundError:
        if os.path.islink(out):  # one that leads nowhere
            raise _no_shard_set(out) from None
        return []
    except OSError as exc:
        raise _no_shard_set(out) from exc


def _no_shard_set(out: Path) -> OutputExistsError:
    return OutputExistsError(
        "output exists and is no shard set",
        where=out,
        advice="choose another directory, or remove it yourself",
    )


def _damaged(out: Path, found: str) -> OutputExistsError:
    return OutputExistsError(
        "output holds a damaged shard set", where=out, found=found, advice="use --force to replace it"
    )


def _has_size(path: Path, size_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes
