# SPDX-License-Identifier: Apache-2.0
"""Reads the tokenizer of a Hugging Face directory: tokenizer.json or tokenizer.model, tokenizer_config.json.

Every step of a tokenizer.json is recognised as one that is computed exactly, or refused by name. Its
truncation and padding are for batches and do not apply here, as in `transformers`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quickthaw.layers.errors import TokenizerError, TokenizerMissingError, UnsupportedTokenizerError
from quickthaw.layers.text.added_tokens import AddedToken
from quickthaw.layers.text.normalizer import Normalizer
from quickthaw.layers.text.pretokenizer import EXPRESSIONS, SPACE, Metaspace
from quickthaw.layers.text.sentencepiece_model import read_model
from quickthaw.layers.text.tokenizer_spec import TokenizerSpec

_FLAGS = ("special", "normalized", "lstrip", "rstrip")
_BYTES_TO_TEXT = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def read_directory(directory: Path) -> TokenizerSpec:
    """Raises: TokenizerMissingError without one, UnsupportedTokenizerError, TokenizerError when malformed."""
    config = _load(directory / "special_tokens_map.json") | _load(directory / "tokenizer_config.json")
    if (directory / "tokenizer.json").exists():
        spec = from_tokenizer_json(_load(directory / "tokenizer.json"))
    elif (directory / "tokenizer.model").exists():
        spec = read_model(directory / "tokenizer.model", is_legacy=bool(config.get("legacy", True)))
    else:
        raise TokenizerMissingError(
            "no tokenizer", where=directory, expected="tokenizer.json or tokenizer.model", found="neither"
        )
    return _configured(spec, config)


def _load(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is no such file."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:  # or nested too deeply
        raise TokenizerError("not JSON", where=path, found=exc) from exc
    if not isinstance(content, dict):
        raise TokenizerError("not a JSON object", where=path, found=type(content).__name__)
    return content


def from_tokenizer_json(document: Mapping[str, Any]) -> TokenizerSpec:
    """The tokenizer of a tokenizer.json. Raises: UnsupportedTokenizerError naming what is not computed."""
    try:
        return _spec(document)
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise TokenizerError("malformed tokenizer.json", found=repr(exc)) from exc


def _spec(document: Mapping[str, Any]) -> TokenizerSpec:
    model = _model(document["model"])
    normalizer = _normalizer(_steps(document.get("normalizer"), "normalizers"))
    steps = _steps(document.get("pre_tokenizer"), "pretokenizers")
    is_byte_level = any(step["type"] == "ByteLevel" for step in steps)
    split, metaspace = (_byte_level_split(steps), None) if is_byte_level else _metaspace(steps)
    before, after = _template(_steps(document.get("post_processor"), "processors"))
    if is_byte_level and model.get("unk_token") and model.get("fuse_unk"):
        raise _unsupported("a byte-level model with fuse_unk", "no fuse_unk")
    if not is_byte_level and not model.get("byte_fallback"):
        raise _unsupported("a BPE model without byte_fallback", "a ByteLevel pre-tokenizer, or byte_fallback")
    if not is_byte_level and metaspace is None and not normalizer.writes_spaces:
        raise _unsupported(
            "a pre-tokenizer that leaves spaces alone", "ByteLevel, Metaspace, or Replace to ▁"
        )
    return TokenizerSpec(
        kind="byte-level" if is_byte_level else "sentencepiece",
        split=split,
        vocabulary=model["vocab"],
        merges=[_pair(merge) for merge in model["merges"]],
        added=_added(document.get("added_tokens") or ()),
        ignore_merges=bool(model.get("ignore_merges")),
        normalizer=normalizer,
        metaspace=metaspace,
        strips_space=_strips_space(_steps(document.get("decoder"), "decoders"), is_byte_level),
        before=before,
        after=after,
        unknown_token_id=model["vocab"].get(model.get("unk_token")) if is_byte_level else None,
    )


def _unsupported(found: str, supported: str) -> UnsupportedTokenizerError:
    return UnsupportedTokenizerError("unsupported tokenizer", found=found, expected=supported)


def _steps(component: Mapping[str, Any] | None, members: str) -> list[dict[str, Any]]:
    """A component as the list of its steps, sequences within sequences made flat."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [dict(component)]
    return [step for member in component[members] for step in _steps(member, members)]


def _names(steps: list[dict[str, Any]]) -> str:
    return " + ".join(json.dumps(step, ensure_ascii=False) for step in steps) or "none"


def _model(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model, if it is one of byte pairs without what changes how they are merged."""
    if model.get("type", "BPE" if "merges" in model else "nameless") != "BPE":
        raise _unsupported(f"a {model.get('type', 'nameless')} model", "a BPE model")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise _unsupported(f"a BPE model with {option} {model[option]!r}", f"no {option}")
    return model


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _normalizer(steps: list[dict[str, Any]]) -> Normalizer:
    writes = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepends = {"type": "Prepend", "prepend": SPACE}
    for known, normalizer in (
        ([], Normalizer()),
        ([{"type": "NFC"}], Normalizer(nfc=True)),
        ([writes], Normalizer(writes_spaces=True)),
        ([prepends, writes], Normalizer(writes_spaces=True, prepends_space=True)),
    ):
        if steps == known:
            return normalizer
    raise _unsupported(
        f"normalizer {_names(steps)}", f"none, NFC, or Prepend {SPACE} and Replace space by {SPACE}"
    )


def _byte_level_split(steps: list[dict[str, Any]]) -> str:
    *first, byte_level = steps
    if byte_level["type"] == "ByteLevel" and not byte_level.get("add_prefix_space"):
        if byte_level.get("use_regex", True):
            if not first:
                return "gpt2"
            if first == [{"type": "Digits", "individual_digits": True}]:
                return "smollm"
        elif len(first) == 1 and first[0]["type"] == "Split":
            step = first[0]
            split = EXPRESSIONS.get(step["pattern"].get("Regex", ""))
            if split and step["behavior"] == "Isolated" and not step.get("invert"):
                return split
    raise _unsupported(
        f"pre-tokenizer {_names(steps)}",
        "ByteLevel without add_prefix_space, alone, after Digits(individual_digits), "
        f"or without use_regex after the Split of {', '.join(sorted(set(EXPRESSIONS.values())))}",
    )


def _metaspace(steps: list[dict[str, Any]]) -> tuple[str, Metaspace | None]:
    if not steps:
        return "whole", None
    if len(steps) == 1 and steps[0]["type"] == "Metaspace" and steps[0].get("replacement", SPACE) == SPACE:
        scheme: Metaspace = steps[0].get("prepend_scheme") or (
            "always" if steps[0].get("add_prefix_space", True) else "never"
        )
        return ("before_each_space" if steps[0].get("split", True) else "whole"), scheme
    raise _unsupported(
        f"pre-tokenizer {_names(steps)}", "none, Metaspace, or ByteLevel with one of its splits"
    )


def _template(steps: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """The tokens that the post-processor puts before and after a single text."""
    before: list[int] = []
    after: list[int] = []
    for step in steps:
        if step["type"] == "ByteLevel":
            continue  # moves offsets only
        if step["type"] != "TemplateProcessing":
            raise _unsupported(f"post-processor {step['type']}", "ByteLevel, TemplateProcessing")
        pieces = [_template_piece(piece, step["special_tokens"]) for piece in step["single"]]
        text = pieces.index(None)
        before = [*_flat(pieces[:text]), *before]
        after = [*after, *_flat(pieces[text + 1 :])]
    return before, after


def _template_piece(piece: Mapping[str, Any], special_tokens: Mapping[str, Any]) -> list[int] | None:
    """A piece's tokens; None for the text itself."""
    if "SpecialToken" in piece:
        return list(special_tokens[piece["SpecialToken"]["id"]]["ids"])
    return None


def _flat(pieces: list[list[int] | None]) -> list[int]:
    return [token for piece in pieces for token in piece or ()]


def _strips_space(steps: list[dict[str, Any]], is_byte_level: bool) -> bool:
    if is_byte_level and [step["type"] for step in steps] == ["ByteLevel"]:
        return False
    if not is_byte_level and steps in (_BYTES_TO_TEXT, [*_BYTES_TO_TEXT, _STRIP]):
        return steps[-1] == _STRIP
    raise _unsupported(
        f"decoder {_names(steps)}",
        "ByteLevel, or Replace, ByteFallback, Fuse and perhaps Strip of one leading space",
    )


def _added(tokens: Sequence[Mapping[str, Any]]) -> list[AddedToken]:
    for token in tokens:
        if token.get("single_word"):
            raise _unsupported(
                f"added token {token['content']!r} with single_word", f"only {', '.join(_FLAGS)}"
            )
    return [
        AddedToken(int(token["id"]), token["content"], *(bool(token.get(flag)) for flag in _FLAGS))
        for token in tokens
        if token["content"]
    ]


def _configured(spec: TokenizerSpec, config: Mapping[str, Any]) -> TokenizerSpec:
    """`spec` with what tokenizer_config.json and special_tokens_map.json say: more tokens, begin and end."""
    more = [{"id": id_} | token for id_, token in (config.get("added_tokens_decoder") or {}).items()]
    # The last word on a token is tokenizer.json's.
    added = {token.content: token for token in [*_added(more), *spec.added]}
    ids = spec.vocabulary | {content: token.id for content, token in added.items()}
    bos, eos = (
        ids.get(_content(config.get(name)), default)
        for name, default in (("bos_token", spec.bos_token_id), ("eos_token", spec.eos_token_id))
    )
    before, after = spec.before, spec.after
    # Where they are said, they replace the post-processor, as in `transformers`.
    if "add_bos_token" in config or "add_eos_token" in config:
        before = [bos] if config.get("add_bos_token") and bos is not None else []
        after = [eos] if config.get("add_eos_token") and eos is not None else []
    return replace(
        spec, added=list(added.values()), bos_token_id=bos, eos_token_id=eos, before=before, after=after
    )


def _content(token: str | Mapping[str, Any] | None) -> str:
    """A token's text, which these files write plainly or as an object."""
    return (token.get("content") if isinstance(token, Mapping) else token) or ""
