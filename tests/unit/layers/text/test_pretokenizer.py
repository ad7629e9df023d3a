# SPDX-License-Identifier: Apache-2.0
"""A text is cut where the `tokenizers` package cuts it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quickthaw.layers.text.pretokenizer import EXPRESSIONS, SENTENCEPIECE_SPLITS, SPLITS, word_splitter
from tests.golden.tokenizer_models import byte_level_pre_tokenizer

# One character of each class, and two of some that a repetition counts.
ALPHABET = "stdSTvVeErRmMlLzZ\u017fªǅ中\u0301 \t\u00a0\r\n'/.!0\u0661\u0663\u00b2\U00011de5🙂"


@pytest.mark.parametrize("split", list(SPLITS))
@settings(max_examples=400, deadline=None)
@given(text=st.text(ALPHABET, max_size=30))
def test_words_are_the_references(split: str, text: str) -> None:
    pieces = byte_level_pre_tokenizer(split).pre_tokenize_str(text)
    # The offsets, as the pieces themselves are in the byte alphabet.
    assert word_splitter(split)(text) == [text[start:end].encode() for _, (start, end) in pieces]


@pytest.mark.parametrize("split", list(SPLITS))
def test_every_pair_of_classes(split: str) -> None:
    reference = byte_level_pre_tokenizer(split)
    cut = word_splitter(split)
    for text in (a + b + c for a in ALPHABET for b in ALPHABET for c in " a\n'"):
        assert cut(text) == [text[start:end].encode() for _, (start, end) in reference.pre_tokenize_str(text)]


@pytest.mark.parametrize("split", [*SPLITS, *SENTENCEPIECE_SPLITS])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_is_lost(split: str, text: str) -> None:
    assert b"".join(word_splitter(split)(text)) == text.encode()


def test_every_known_expression_has_a_split() -> None:
    assert set(EXPRESSIONS.values()) <= set(SPLITS)
