# SPDX-License-Identifier: Apache-2.0
"""What was typed as the place of a shard set: whether there is one, and what to do when there is not."""

import os
from pathlib import Path

from quickthaw.layers.errors import ManifestError
from quickthaw.layers.manifest import FILE_NAME
from quickthaw.layers.storage.storage import is_remote


def shard_location(text: str) -> str:
    """A URL as it is, since who opens it says what is wrong with it, and a path in full.

    Raises: ManifestError when there is no manifest in the path.
    """
    if is_remote(text):
        return text
    check_is_shard_set(Path(text))
    return os.path.realpath(text)


def check_is_shard_set(path: Path) -> None:
    """Raises: ManifestError when there is no manifest in `path`."""
    manifest = path / FILE_NAME
    try:
        os.stat(manifest)
    except OSError as exc:
        if _is_checkpoint(path):
            advice = f"split it first with `quickthaw shard {path} OUT`"
            raise ManifestError("this is a checkpoint", where=path, advice=advice) from exc
        advice = "name a directory made by `quickthaw shard`"
        raise ManifestError("no shard set", where=manifest, found=exc.strerror, advice=advice) from exc


def _is_checkpoint(path: Path) -> bool:
    """A GGUF file, or a directory of Hugging Face's or with such a file."""
    if path.is_file():
        return path.suffix == ".gguf"
    return (path / "config.json").is_file() or any(path.glob("*.gguf"))
