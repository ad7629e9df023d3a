# SPDX-License-Identifier: Apache-2.0
"""Tokens and text equal those of the `tokenizers` package, for any text, whatever the kind of tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quickthaw.layers.errors import PromptError, PromptTooLongError
from quickthaw.layers.text.tokenizer import Tokenizer
from quickthaw.layers.text.tokenizer_source import write_tables
from tests.golden.tokenizer_models import REFERENCES, SPECIAL, TRAINING_TEXT

FRAGMENTS = [
    *SPECIAL, "<strip>", "<mask>", "e\u0301!", "é!", "日本", "<s>", "</s>", "<unk>", "[INST]", "<0x41>",
    " ", "  ", "   ", "▁", "▁▁", "\n", "\r\n", "\t", "\u3000", "\x1c", "\u0085", "\0", "\ufffd", "aaaaaaaa",
    "'s", "'S", "'\u017f", "'ll", "'Re", "don't", "0", "123456", "\u0664", "\u00b2", "\U00011de5",
    "\u0301", "\u0345\u0301", "\u0344", "\u212b", "\u1e9b\u0323", "가각", "\u1100\u1161", "你好",
    "def f(x):\n    return x", "👩\u200d👩\u200d👧", "🇫🇷", "🙂", "Straße", "Привет",
]  # fmt: skip
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(FRAGMENTS),
        st.sampled_from(TRAINING_TEXT.split(" ")),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.text("aeinrst '.,0123456789\n", max_size=12),
    ),
    max_size=12,
).map("".join)
KINDS = list(REFERENCES)


class Pair(NamedTuple):
    ours: Tokenizer
    reference: tokenizers.Tokenizer


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Every kind of tokenizer, as ours and as the library's."""
    result = {}
    for kind, make in REFERENCES.items():
        directory = tmp_path_factory.mktemp("tokenizer")
        reference = make()
        reference.save(str(directory / "tokenizer.json"))
        result[kind] = Pair(open_tables(directory), reference)
    return result


def open_tables(source: Path) -> Tokenizer:
    path = source / "tokenizer.bin"
    with open(path, "wb") as out:
        write_tables(source, out)
    return Tokenizer.open(path)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, add_special=st.booleans())
def test_tokens_are_the_references(pairs: dict[str, Pair], kind: str, text: str, add_special: bool) -> None:
    ours, reference = pairs[kind]
    assert (
        ours.encode(text, add_special=add_special)
        == reference.encode(text, add_special_tokens=add_special).ids
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), skip_special=st.booleans())
def test_text_is_the_references(
    pairs: dict[str, Pair], kind: str, data: st.DataObject, skip_special: bool
) -> None:
    ours, reference = pairs[kind]
    ids = data.draw(st.lists(st.one_of(st.integers(0, 300), st.integers(0, ours.n_tokens + 5)), max_size=24))
    # An added token that NFC changes is written as its letters' bytes by the reference: "\ufffd!" for "é!".
    assume(kind != "qwen2" or reference.token_to_id("e\u0301!") not in ids)
    assert ours.decode(ids, skip_special=skip_special) == reference.decode(
        ids, skip_special_tokens=skip_special
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(text=TEXTS)
def test_a_stream_shows_whole_characters_only(pairs: dict[str, Pair], kind: str, text: str) -> None:
    ours, _ = pairs[kind]
    ids = ours.encode(text, add_special=False)
    stream = ours.stream()
    pieces = [*map(stream.push, ids), stream.finish()]
    assert "".join(pieces) == ours.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(text=TEXTS)
def test_the_bytes_of_tokens_make_up_their_text(pairs: dict[str, Pair], kind: str, text: str) -> None:
    ours, _ = pairs[kind]
    ids = ours.encode(text, add_special=False)
    spelled = b"".join(map(ours.token_bytes, ids)).decode()
    decoded = ours.decode(ids, skip_special=False)
    assert spelled in (decoded, f" {decoded}")  # SentencePiece's first space is not part of a text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "unit", ["a", " ", "\n", "é", "字", "🙂", "<", "' ", "ab ", "1", "\u0301", " \n", "<|im_"]
)
def test_long_runs(pairs: dict[str, Pair], kind: str, unit: str) -> None:
    ours, reference = pairs[kind]
    text = unit * 2000
    assert ours.encode(text) == reference.encode(text).ids


@pytest.mark.parametrize("kind", KINDS)
def test_every_added_token_is_found_in_a_text(pairs: dict[str, Pair], kind: str) -> None:
    ours, reference = pairs[kind]
    for token_id, token in reference.get_added_tokens_decoder().items():
        text = f"a {token.content} b{token.content}{token.content}"
        ids = ours.encode(text)
        assert ids == reference.encode(text).ids
        assert token_id in ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_too_long_is_refused(pairs: dict[str, Pair], kind: str) -> None:
    ours, _ = pairs[kind]
    text = "one two three"
    n_tokens = len(ours.encode(text))
    assert len(ours.encode(text, max_tokens=n_tokens)) == n_tokens
    with pytest.raises(PromptTooLongError, match=f"at most {n_tokens - 1} tokens"):
        ours.encode(text, max_tokens=n_tokens - 1)


def test_a_prompt_far_too_long_is_refused_before_it_is_merged(
    pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = pairs["gpt2"]
    monkeypatch.setattr("quickthaw.layers.text.merges.Merges.apply", lambda *_: pytest.fail("merged"))
    with pytest.raises(PromptTooLongError) as info:
        ours.encode("a" * 1_000_000, max_tokens=2048)
    assert info.value.max_tokens == 2048
    assert info.value.fewest_tokens > 2048


def test_a_prompt_far_too_long_is_refused_before_it_is_normalized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(REFERENCES["qwen2"]().to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if not token["normalized"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    ours = open_tables(tmp_path)
    fits = "\u1fbe\u0308\u0301" * 100
    assert ours.encode(fits, max_tokens=len(ours.encode(fits)))
    monkeypatch.setattr("quickthaw.layers.text.normalizer.to_nfc", lambda _: pytest.fail("normalized"))
    with pytest.raises(PromptTooLongError):
        ours.encode("a" + "\u0301\u0323" * 100_000, max_tokens=256)


class WatchedSlots:
    """Counts the slots of a hash table that are looked at."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._slots = slots
        self.n_seen = 0

    def __getitem__(self, slot: int) -> int:
        self.n_seen += 1
        return self._slots[slot]


@pytest.mark.parametrize("kind", ["gpt2", "mistral legacy"])
def test_the_search_for_a_character_is_short(
    pairs: dict[str, Pair], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = pairs[kind].ours._vocabulary
    slots = WatchedSlots(vocabulary._words)
    monkeypatch.setattr(vocabulary, "_words", slots)
    for code in range(0x3000):
        vocabulary._find(chr(code).encode())
    assert slots.n_seen <= 4 * 0x3000


@pytest.mark.parametrize("kind", ["mistral legacy", "mistral-v3 legacy"])
def test_a_character_without_a_token_is_searched_for_once(
    pairs: dict[str, Pair], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = pairs[kind].ours._vocabulary
    slots = WatchedSlots(vocabulary._words)
    monkeypatch.setattr(vocabulary, "_words", slots)
    pairs[kind].ours.encode("\n\x04" * 1000)
    assert slots.n_seen < 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_refused(pairs: dict[str, Pair], kind: str) -> None:
    with pytest.raises(PromptError, match=r"U\+D83D at character 2"):
        pairs[kind].ours.encode("ab\ud83dcd")


def test_words_are_remembered_in_bounded_memory(pairs: dict[str, Pair]) -> None:
    from quickthaw.layers.text.vocabulary import CACHED_WORDS

    ours, _ = pairs["gpt2"]
    for start in range(0, 3 * CACHED_WORDS, 1000):
        ours.encode(" ".join(f"w{number}" for number in range(start, start + 1000)))
        assert len(ours._vocabulary._cache) <= CACHED_WORDS
