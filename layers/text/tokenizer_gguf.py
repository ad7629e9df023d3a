# SPDX-License-Identifier: Apache-2.0
"""Reads the tokenizer in a GGUF file's metadata.

Source: the `tokenizer.ggml.*` keys of ggml's docs/gguf.md; for each `pre`, llama.cpp's llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from quickthaw.layers.errors import TokenizerError, TokenizerMissingError, UnsupportedTokenizerError
from quickthaw.layers.text.added_tokens import AddedToken
from quickthaw.layers.text.normalizer import Normalizer
from quickthaw.layers.text.sentencepiece_model import Piece, PieceType, sentencepiece_spec
from quickthaw.layers.text.tokenizer_spec import TokenizerSpec


class _Pre(NamedTuple):
    """What a `tokenizer.ggml.pre` stands for."""

    split: str
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


_PRES = {
    "gpt-2": _Pre("gpt2"),
    "smollm": _Pre("smollm"),
    "llama-bpe": _Pre("llama3", ignore_merges=True, adds_bos=True),
    "llama3": _Pre("llama3", ignore_merges=True, adds_bos=True),
    "llama-v3": _Pre("llama3", ignore_merges=True, adds_bos=True),
    "qwen2": _Pre("qwen2", nfc=True),
}


def read_gguf(metadata: Mapping[str, Any]) -> TokenizerSpec:
    """Raises: TokenizerMissingError without one, UnsupportedTokenizerError, TokenizerError when malformed."""
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    model = keys.get("model")
    if model is None:
        raise TokenizerMissingError("no tokenizer in the GGUF metadata", expected="tokenizer.ggml.model")
    try:
        if model == "gpt2":
            return _byte_level(keys)
        if model == "llama":
            return _sentencepiece(keys)
    except (KeyError, ValueError, TypeError, IndexError) as exc:
        raise TokenizerError("malformed tokenizer in the GGUF metadata", found=repr(exc)) from exc
    raise UnsupportedTokenizerError("unsupported tokenizer.ggml.model", expected="gpt2 or llama", found=model)


def _byte_level(keys: Mapping[str, Any]) -> TokenizerSpec:
    pre = _PRES.get(keys.get("pre", "absent"))
    if pre is None:
        raise UnsupportedTokenizerError(
            "unsupported tokenizer.ggml.pre",
            expected=f"one of {', '.join(_PRES)}",
            found=keys.get("pre", "none"),
        )
    before, after = _surroundings(keys, adds_bos=pre.adds_bos)
    types = [PieceType(number) for number in keys["token_type"]]
    return TokenizerSpec(
        kind="byte-level",
        split=pre.split,
        vocabulary={
            token: index for index, token in enumerate(keys["tokens"]) if types[index] != PieceType.UNUSED
        },
        merges=[_pair(merge) for merge in keys["merges"]],
        added=[
            AddedToken(index, keys["tokens"][index], special=type_ != PieceType.USER_DEFINED)
            for index, type_ in enumerate(types)
            if type_ in (PieceType.UNKNOWN, PieceType.CONTROL, PieceType.USER_DEFINED)
        ],
        ignore_merges=pre.ignore_merges,
        normalizer=Normalizer(nfc=pre.nfc),
        before=before,
        after=after,
        bos_token_id=keys.get("bos_token_id"),
        eos_token_id=keys.get("eos_token_id"),
    )


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right


def _sentencepiece(keys: Mapping[str, Any]) -> TokenizerSpec:
    has_prefix = bool(keys.get("add_space_prefix", True))
    before, after = _surroundings(keys, adds_bos=True)
    pieces = zip(keys["tokens"], keys["scores"], keys["token_type"], strict=True)
    return sentencepiece_spec(
        [Piece(text, float(score), PieceType(type_)) for text, score, type_ in pieces],
        prepends_space=has_prefix,
        metaspace=None,
        strips_space=has_prefix,
        bos_token_id=keys.get("bos_token_id"),
        eos_token_id=keys.get("eos_token_id"),
        before=before,
        after=after,
    )


def _surroundings(keys: Mapping[str, Any], *, adds_bos: bool) -> tuple[list[int], list[int]]:
    """The tokens before and after a text; `adds_bos` when the metadata does not say."""
    bos, eos = keys.get("bos_token_id"), keys.get("eos_token_id")
    before = [bos] if keys.get("add_bos_token", adds_bos) and bos is not None else []
    after = [eos] if keys.get("add_eos_token", False) and eos is not None else []
    return before, after
