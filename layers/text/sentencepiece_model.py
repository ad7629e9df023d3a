# SPDX-License-Identifier: Apache-2.0
"""Reads a SentencePiece tokenizer.model: a protobuf message of which a few fields matter.

    ModelProto:      1 pieces (repeated)  2 trainer_spec  3 normalizer_spec
    SentencePiece:   1 piece  2 score (float)  3 type
    TrainerSpec:     3 model_type  24 treat_whitespace_as_suffix  35 byte_fallback
    NormalizerSpec:  2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces
                     5 escape_whitespaces

Source: sentencepiece_model.proto of https://github.com/google/sentencepiece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from quickthaw.layers.errors import TokenizerError, UnsupportedTokenizerError
from quickthaw.layers.text.added_tokens import AddedToken
from quickthaw.layers.text.normalizer import Normalizer
from quickthaw.layers.text.pretokenizer import Metaspace
from quickthaw.layers.text.tokenizer_spec import TokenizerSpec

_BPE = 2
_Field = int | bytes


class PieceType(IntEnum):
    """What a piece is; GGUF's tokenizer.ggml.token_type has the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """One token."""

    text: str
    score: float
    type: PieceType


def read_model(path: Path, *, is_legacy: bool) -> TokenizerSpec:
    """A tokenizer.model; unless `is_legacy`, only a text's very beginning gets a space, as in `transformers`.

    Raises: UnsupportedTokenizerError when it is no BPE model or normalizes; TokenizerError when malformed.
    """
    pieces, trainer, normalizer = _read(path)
    for is_supported, name in (
        (trainer.get(3, 1) == _BPE, "a model that is not BPE"),
        (trainer.get(35, 0) == 1, "a model without byte_fallback"),
        (not trainer.get(24, 0), "treat_whitespace_as_suffix"),
        (not normalizer.get(2, b""), "a normalizer (precompiled_charsmap)"),
        (not normalizer.get(4, 1), "remove_extra_whitespaces"),
        (normalizer.get(5, 1) == 1, "no escape_whitespaces"),
    ):
        if not is_supported:
            raise UnsupportedTokenizerError("unsupported SentencePiece model", where=path, found=name)
    has_prefix = bool(normalizer.get(3, 1))
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    bos, eos = ids.get("<s>"), ids.get("</s>")
    return sentencepiece_spec(
        pieces,
        prepends_space=has_prefix and is_legacy,
        metaspace=None if is_legacy else ("first" if has_prefix else "never"),
        strips_space=has_prefix,
        bos_token_id=bos,
        eos_token_id=eos,
        before=[] if bos is None else [bos],
        after=[],
    )


def read_pieces(path: Path) -> list[Piece]:
    """The tokens of a tokenizer.model, by id. Raises: TokenizerError when it is malformed."""
    return _read(path)[0]


def sentencepiece_spec(
    pieces: Sequence[Piece],
    *,
    prepends_space: bool,
    metaspace: Metaspace | None,
    strips_space: bool,
    bos_token_id: int | None,
    eos_token_id: int | None,
    before: Sequence[int],
    after: Sequence[int],
) -> TokenizerSpec:
    """The tokenizer of scored pieces, as `tokenizers` is given it."""
    return TokenizerSpec(
        kind="sentencepiece",
        split="whole",
        vocabulary={piece.text: index for index, piece in enumerate(pieces)},
        merges=_merges(pieces),
        added=[
            AddedToken(index, piece.text, special=piece.type != PieceType.USER_DEFINED)
            for index, piece in enumerate(pieces)
            if piece.type in (PieceType.UNKNOWN, PieceType.CONTROL, PieceType.USER_DEFINED)
        ],
        normalizer=Normalizer(writes_spaces=metaspace is None, prepends_space=prepends_space),
        metaspace=metaspace,
        strips_space=strips_space,
        before=before,
        after=after,
        bos_token_id=bos_token_id,
        eos_token_id=eos_token_id,
    )


def _read(path: Path) -> tuple[list[Piece], dict[int, _Field], dict[int, _Field]]:
    """Pieces, and the fields of the trainer's and the normalizer's specification."""
    try:
        message = list(_fields(path.read_bytes()))
        pieces = [_piece(dict(_fields(_bytes(value)))) for number, value in message if number == 1]
        trainer = dict(_fields(b"".join(_bytes(value) for number, value in message if number == 2)))
        normalizer = dict(_fields(b"".join(_bytes(value) for number, value in message if number == 3)))
    except (IndexError, KeyError, ValueError, struct.error) as exc:
        raise TokenizerError("not a SentencePiece model", where=path, found=repr(exc)) from exc
    return pieces, trainer, normalizer


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Every way to join two pieces into a third: best score first, then earlier piece, then shorter left."""
    known = {piece.text for piece in pieces}
    merges = [
        (-piece.score, index, cut)
        for index, piece in enumerate(pieces)
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in known and piece.text[cut:] in known
    ]
    return [(pieces[index].text[:cut], pieces[index].text[cut:]) for _, index, cut in sorted(merges)]


def _piece(fields: dict[int, _Field]) -> Piece:
    (score,) = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))
    return Piece(_bytes(fields[1]).decode(), score, PieceType(_number(fields.get(3, 1))))


def _number(value: _Field) -> int:
    if isinstance(value, int):
        return value
    raise ValueError(f"bytes where a number belongs: {value!r}")


def _bytes(value: _Field) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError(f"a number where bytes belong: {value}")


def _fields(message: bytes) -> Iterator[tuple[int, _Field]]:
    """Number and value of each field of a protobuf message."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key & 7 == 0:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        if key & 7 == 2:
            size, position = _varint(message, position)
        elif key & 7 in (1, 5):
            size = 8 if key & 7 == 1 else 4
        else:
            raise ValueError(f"wire type {key & 7}")
        if position + size > len(message):
            raise ValueError(f"a field of {size} bytes at {position} of {len(message)}")
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
