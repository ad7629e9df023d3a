# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quickthaw.layers.checkpoints.hugging_face_text import chat_template, has_tokenizer, special_tokens
from quickthaw.layers.errors import CheckpointError


def write(directory: Path, record: Any) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(record))


def test_an_empty_directory_has_none(tmp_path: Path) -> None:
    assert chat_template(tmp_path) is None
    assert special_tokens(tmp_path) == {}
    assert not has_tokenizer(tmp_path)


def test_the_template_of_its_own_file_wins(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    write(tmp_path, {"chat_template": named})
    assert chat_template(tmp_path) == "D"

    write(tmp_path, {"chat_template": named[:1]})
    assert chat_template(tmp_path) is None

    write(tmp_path, {"chat_template": "C"})
    assert chat_template(tmp_path) == "C"

    (tmp_path / "chat_template.jinja").write_text("J")
    assert chat_template(tmp_path) == "J"


def test_special_tokens_are_those_of_both_files(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<a>", "unk_token": "<u>"}')
    tokens = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "pad_token": None}
    write(tmp_path, {"chat_template": "C", "add_bos_token": True, **tokens})

    assert special_tokens(tmp_path) == {"bos_token": "<s>", "unk_token": "<u>", "eos_token": "</s>"}


@pytest.mark.parametrize("template", [5, {}, [1], [{"name": "default"}], [{"name": 1, "template": "T"}]])
def test_a_malformed_template_is_named_with_its_file(tmp_path: Path, template: Any) -> None:
    write(tmp_path, {"chat_template": template})

    with pytest.raises(CheckpointError, match=r"unusable chat_template.*tokenizer_config\.json"):
        chat_template(tmp_path)


def test_a_template_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")

    with pytest.raises(CheckpointError, match=r"cannot read a chat template: .*chat_template\.jinja"):
        chat_template(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "special_tokens_map.json").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"special_tokens_map\.json"):
        special_tokens(tmp_path)
