# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON file of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from quickthaw.layers.errors import CheckpointError
from quickthaw.layers.record import Record


def read(path: Path, *, is_optional: bool = False) -> Record:
    """The object in the file; an empty one where an optional file is absent. Raises: CheckpointError."""
    try:
        return Record(json.loads(path.read_bytes()), path, CheckpointError)
    except FileNotFoundError as exc:
        if is_optional:
            return Record({}, path, CheckpointError)
        raise _unreadable(path, str(exc.strerror)) from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise _unreadable(path, str(exc)) from exc


def _unreadable(path: Path, found: str) -> CheckpointError:
    return CheckpointError("cannot read a checkpoint's file", where=path, found=found)
