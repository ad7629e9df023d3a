# SPDX-License-Identifier: Apache-2.0
"""Every source gives the same tokenizer; whatever is not computed exactly is refused by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quickthaw.layers.errors import TokenizerError, TokenizerMissingError, UnsupportedTokenizerError
from quickthaw.layers.text.sentencepiece_model import read_pieces
from quickthaw.layers.text.tokenizer import Tokenizer
from quickthaw.layers.text.tokenizer_source import TokenizerInfo, write_tables
from tests.golden.tokenizer_models import MISTRAL_DATA, MISTRAL_MODELS, byte_level, sentencepiece_tokenizer

RUNS = st.builds(str.__mul__, st.sampled_from("-=*#/ ._(a"), st.integers(1, 40))
TEXT = st.lists(st.one_of(RUNS, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))).map("".join)
PRES = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2"}


def opened(source: Path | dict[str, Any], directory: Path) -> tuple[Tokenizer, TokenizerInfo]:
    path = (
        directory / f"{type(source).__name__}.bin"
    )  # one of each kind: a mapped file is not to be overwritten
    with open(path, "wb") as out:
        info = write_tables(source, out)
    return Tokenizer.open(path), info


def byte_level_document(split: str = "gpt2") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(byte_level(split).to_str())
    return document


def gguf_metadata(document: dict[str, Any], split: str) -> dict[str, Any]:
    """A byte-level tokenizer.json and its special tokens, as the metadata of a GGUF file."""
    vocabulary = document["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {token["content"] for token in document["added_tokens"] if token["special"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": PRES[split],
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in document["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    }


@pytest.mark.parametrize("split", list(PRES))
def test_gguf_and_tokenizer_json_agree(tmp_path: Path, split: str) -> None:
    document = byte_level_document(split)
    from_gguf, info = opened(gguf_metadata(document, split), tmp_path)
    document["added_tokens"] = [token for token in document["added_tokens"] if token["special"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    from_json, _ = opened(tmp_path, tmp_path)
    for text in ("", "The capital: ١٢ 123's\n\n  x<|im_end|> e\u0301", "\u212b<|im_start|>x"):
        assert from_gguf.encode(text) == from_json.encode(text)
    assert info == TokenizerInfo(
        n_tokens=len(document["model"]["vocab"]),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        bos_token_id=1,
        eos_token_id=2,
        adds_bos=split == "llama3",
        adds_eos=False,
    )


def test_gguf_of_scored_pieces_equals_its_tokenizer_model(tmp_path: Path) -> None:
    pieces = read_pieces(MISTRAL_DATA / MISTRAL_MODELS[0])
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.text for piece in pieces],
        "tokenizer.ggml.scores": [piece.score for piece in pieces],
        "tokenizer.ggml.token_type": [int(piece.type) for piece in pieces],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    from_gguf, info = opened(metadata, tmp_path)
    reference = sentencepiece_tokenizer(MISTRAL_MODELS[0], "legacy")
    for text in ("", " The <s>capital\n\n  of 🙂 Fränce</s>", "\t日本"):
        assert from_gguf.encode(text) == reference.encode(text).ids
    assert (info.bos_token, info.eos_token, info.adds_bos, info.adds_eos) == ("<s>", "</s>", True, False)


@pytest.fixture(scope="module", params=MISTRAL_MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    """A tokenizer.model as ours and as SentencePiece's own."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "tokenizer.model").symlink_to(MISTRAL_DATA / request.param)
    reference = sentencepiece.SentencePieceProcessor(str(MISTRAL_DATA / request.param))
    return opened(directory, directory)[0], reference


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_tokenizer_model_is_sentencepieces(model: tuple[Tokenizer, Any], text: str) -> None:
    ours, reference = model
    text = text.replace("\0", "")  # SentencePiece's own binding ends there
    # To SentencePiece a special token that is written out is text; to Hugging Face, and to us, it is itself.
    specials = {reference.id_to_piece(token_id) for token_id in ours.special_ids}
    assume(not any(special in text for special in specials))
    assert ours.encode(text, add_special=False) == reference.encode(text)


@pytest.mark.parametrize(
    ("legacy", "tokens"), [(True, ["<s>", "a", "<s>", "▁b"]), (False, ["<s>", "a", "<s>", "b"])]
)
def test_legacy_says_which_stretches_begin_with_a_space(
    tmp_path: Path, legacy: bool, tokens: list[str]
) -> None:
    (tmp_path / "tokenizer.model").symlink_to(MISTRAL_DATA / MISTRAL_MODELS[0])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy, "add_bos_token": False}))
    ours, _ = opened(tmp_path, tmp_path)
    ids = {piece.text: index for index, piece in enumerate(read_pieces(MISTRAL_DATA / MISTRAL_MODELS[0]))}
    assert ours.encode("<s>a<s>b")[2:] == [ids[token] for token in tokens[2:]]


def test_tokenizer_config_names_begin_and_end(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_level_document()))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<|endoftext|>"}))
    config = {
        "eos_token": {"content": "<|im_end|>", "lstrip": False},
        "add_bos_token": True,
        "added_tokens_decoder": {"704": {"content": "<new>", "special": True}},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, info = opened(tmp_path, tmp_path)
    assert (ours.bos_token_id, ours.eos_token_id) == (info.bos_token_id, info.eos_token_id) == (0, 2)
    assert (info.bos_token, info.eos_token, info.adds_bos) == ("<|endoftext|>", "<|im_end|>", True)
    assert ours.encode("<new>") == [0, 704]
    assert ours.encode("<new>", add_special=False) == [704]
    assert ours.decode([0, 704], skip_special=False) == "<|endoftext|><new>"


def test_bytes_without_a_token_vanish_or_are_unknown(tmp_path: Path) -> None:
    document = byte_level_document()
    last = max(document["model"]["vocab"].values())
    for unknown, expected in ((None, []), ("<|endoftext|>", [0])):
        vocabulary = {token: id_ for token, id_ in document["model"]["vocab"].items() if token != "Ą"}
        document["model"] |= {"vocab": vocabulary | {"filler": last + 9}, "unk_token": unknown}
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        ours, _ = opened(tmp_path, tmp_path)
        assert ours.encode("\x04") == expected
        assert ours.encode("a\x04b", max_tokens=3) == [*ours.encode("a"), *expected, *ours.encode("b")]


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerMissingError, match=r"tokenizer\.json or tokenizer\.model"):
        write_tables(tmp_path, io.BytesIO())
    with pytest.raises(TokenizerMissingError, match=r"tokenizer\.ggml\.model"):
        write_tables({"general.architecture": "llama"}, io.BytesIO())


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


REFUSALS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "Unigram": (_set("model", "type", to="Unigram"), "expected a BPE model, found a Unigram model"),
    "WordPiece": (_set("model", "type", to="WordPiece"), "WordPiece"),
    "dropout": (_set("model", "dropout", to=0.1), r"dropout 0\.1"),
    "suffix": (_set("model", "end_of_word_suffix", to="</w>"), "end_of_word_suffix"),
    "normalizer": (_set("normalizer", to={"type": "Lowercase"}), "Lowercase"),
    "NFKC": (_set("normalizer", to={"type": "NFKC"}), "NFKC"),
    "pre-tokenizer": (_set("pre_tokenizer", to={"type": "Whitespace"}), "Whitespace"),
    "prefix space": (_set("pre_tokenizer", "add_prefix_space", to=True), "add_prefix_space"),
    "expression": (
        _set("pre_tokenizer", to={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]}),
        r"gpt2, llama3, qwen2",
    ),
    "post-processor": (_set("post_processor", to={"type": "BertProcessing"}), "BertProcessing"),
    "decoder": (_set("decoder", to={"type": "WordPiece", "prefix": "##"}), "WordPiece"),
    "no decoder": (_set("decoder", to=None), "decoder none"),
    "single_word": (_set("added_tokens", 0, "single_word", to=True), "single_word"),
    "another id": (_set("added_tokens", 0, "id", to=7), "another id"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSALS))
def test_what_is_not_computed_is_refused_by_name(tmp_path: Path, name: str) -> None:
    change, message = REFUSALS[name]
    document = byte_level_document()
    change(document)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedTokenizerError, match=message):
        write_tables(tmp_path, io.BytesIO())


@pytest.mark.parametrize(
    ("key", "value"), [("pre", "deepseek-llm"), ("pre", "default"), ("model", "bert"), ("model", "t5")]
)
def test_gguf_of_another_kind_is_refused_by_name(key: str, value: str) -> None:
    metadata = gguf_metadata(byte_level_document(), "gpt2") | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(UnsupportedTokenizerError, match=f"tokenizer.ggml.{key}.*expected.*found {value}"):
        write_tables(metadata, io.BytesIO())


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b'{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}'],
)
def test_malformed_tokenizer_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError):
        write_tables(tmp_path, io.BytesIO())


def test_a_merge_of_an_unknown_token(tmp_path: Path) -> None:
    document = byte_level_document()
    document["model"]["merges"].append(["a", "never-seen"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(TokenizerError, match="never-seen"):
        write_tables(tmp_path, io.BytesIO())


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 100, 5000])
def test_truncated_tokenizer_model(tmp_path: Path, size_bytes: int) -> None:
    (tmp_path / "tokenizer.model").write_bytes((MISTRAL_DATA / MISTRAL_MODELS[0]).read_bytes()[:size_bytes])
    with pytest.raises(TokenizerError):
        write_tables(tmp_path, io.BytesIO())


def test_gguf_with_a_token_that_is_no_text() -> None:
    metadata = gguf_metadata(byte_level_document(), "gpt2")
    metadata["tokenizer.ggml.tokens"][0] = "\udcff"
    with pytest.raises(TokenizerError, match="not Unicode text"):
        write_tables(metadata, io.BytesIO())
