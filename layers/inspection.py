# SPDX-License-Identifier: Apache-2.0
"""Checks a whole shard set at once, for `quickthaw inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quickthaw.layers import manifest
from quickthaw.layers.config import Verify
from quickthaw.layers.errors import ShardError
from quickthaw.layers.progress import Progress, Quiet
from quickthaw.layers.storage.storage import open_storage
from quickthaw.layers.verification import Verifier

if TYPE_CHECKING:
    from _typeshed import StrPath


def check_all(location: StrPath, verify: Verify, progress: Progress | None = None) -> list[ShardError]:
    """One error for each file of the shard set that is absent or of the wrong size, or whose digest is wrong.

    Raises: ManifestError.
    """
    progress = Quiet() if progress is None else progress
    storage = open_storage(location)
    found = manifest.read_from(storage)
    verifier = Verifier(verify, location)
    errors = []
    progress.start(sum(file.size_bytes for file in found.files))
    for name, size_bytes, sha256 in found.files:
        try:
            stored = storage.open(name, size_bytes, sha256)
            with stored.file as file:
                verifier.check(file, stored.path, sha256)
        except ShardError as exc:
            errors.append(exc)
        progress.advance(size_bytes)
    progress.finish()
    return errors
