# SPDX-License-Identifier: Apache-2.0
"""What a Hugging Face directory holds beside its weights: chat template, special tokens, tokenizer."""

from __future__ import annotations

from pathlib import Path

from quickthaw.layers.checkpoints import json_file
from quickthaw.layers.errors import CheckpointError

_TOKENIZER_CONFIG = "tokenizer_config.json"


def has_tokenizer(directory: Path) -> bool:
    """Whether there is a tokenizer, supported or not."""
    return any((directory / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))


def chat_template(directory: Path) -> str | None:
    """The template of its own file, which wins as in transformers; else the tokenizer's default one.

    Raises: CheckpointError.
    """
    path = directory / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise CheckpointError("cannot read a chat template", where=path, found=str(exc)) from exc
    config = json_file.read(directory / _TOKENIZER_CONFIG, is_optional=True)
    if "chat_template" not in config:
        return None
    if not config.is_list("chat_template"):
        return config.text("chat_template")
    named = {entry.text("name"): entry.text("template") for entry in config.children("chat_template")}
    return named.get("default")


def special_tokens(directory: Path) -> dict[str, str]:
    """The text of each, named as a chat template names it: bos_token and so on. Raises: CheckpointError."""
    tokens: dict[str, str] = {}
    for file_name in ("special_tokens_map.json", _TOKENIZER_CONFIG):
        record = json_file.read(directory / file_name, is_optional=True)
        for name in record:
            token = record.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if name.endswith("_token") and isinstance(text, str):
                tokens[name] = text
    return tokens
