# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from quickthaw.layers.checkpoints.fingerprint import fingerprint
from quickthaw.layers.errors import CheckpointError
from tests import models

CONFIG = models.config("llama")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return models.write_checkpoint(tmp_path / "m", CONFIG, models.tensors(CONFIG))


def test_it_changes_with_every_file_that_is_read(directory: Path) -> None:
    found = {fingerprint(directory)}
    (directory / "generation_config.json").write_text("{}")
    found.add(fingerprint(directory))
    os.utime(directory / "model.safetensors", ns=(1, 1))
    found.add(fingerprint(directory))
    os.truncate(directory / "model.safetensors", 100)
    os.utime(directory / "model.safetensors", ns=(1, 1))
    found.add(fingerprint(directory))

    assert len(found) == 4


def test_it_stays_when_nothing_that_is_read_changed(directory: Path) -> None:
    before = fingerprint(directory)
    (directory / "README.md").write_text("words")
    moved = directory.rename(directory.with_name("moved"))
    link = directory.with_name("link")
    link.symlink_to(moved)

    assert fingerprint(moved) == fingerprint(link) == before


def test_a_file_is_a_checkpoint_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"GGUF")
    before = fingerprint(tmp_path / "model")
    (tmp_path / "model").write_bytes(b"GGUF.")

    assert fingerprint(tmp_path / "model") != before


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        fingerprint(tmp_path / "absent")
