# SPDX-License-Identifier: Apache-2.0
"""Real tokenizers of every supported kind, made with `tokenizers`: the library itself is the reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import mistral_common
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

from quickthaw.layers.text.pretokenizer import EXPRESSIONS, SPACE
from quickthaw.layers.text.sentencepiece_model import PieceType, read_pieces

TRAINING_TEXT = (
    "The capital of France is Paris, isn't it? We'll see: they've 1234 reasons, I'm SURE they'd say 56%.\n"
    "def main(argv: list[str]) -> int:\n    return len(argv) == 3 and argv[1] != 'x'\n\t\t// TODO\r\n\r\n"
    "Żółw, çà et là, Straße, naïve café: déjà vu. Привет, мир! Это 2024 год. こんにちは世界。"
    "你好, 世界! 한국어 문장.\n"
    "مرحبا بالعالم १२३ नमस्ते दुनिया 🙂🙃 👩‍👩‍👧 🇫🇷 x²+y³≤½ — “quotes” …   spaces    and\u00a0more\u2003\n"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>x"]
MISTRAL_DATA = Path(mistral_common.__file__).parent / "data"
MISTRAL_MODELS = ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3")
SPLITS = {split: expression for expression, split in EXPRESSIONS.items()}


def byte_level_pre_tokenizer(split: str) -> pre.PreTokenizer:
    """The pre-tokenizer of a split, as a tokenizer.json has it."""
    if split == "gpt2":
        return pre.ByteLevel(add_prefix_space=False)
    if split == "smollm":
        return pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    expression = pre.Split(Regex(SPLITS[split]), "isolated")
    return pre.Sequence([expression, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(split: str) -> Tokenizer:
    """A byte-level BPE tokenizer. Llama 3's ignores merges and begins with a token, Qwen2's normalizes."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=split == "llama3"))
    tokenizer.pre_tokenizer = byte_level_pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([TRAINING_TEXT], trainer)
    if split == "llama3":
        first = processors.TemplateProcessing("<|im_start|> $A", None, [("<|im_start|>", 1)])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), first])
    tokenizer.add_tokens(
        [
            AddedToken("<strip>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<mask>", lstrip=True, normalized=True),
            AddedToken("e\u0301!", normalized=True),
            AddedToken("日本", normalized=False),
        ]
    )
    return tokenizer


def sentencepiece_tokenizer(model: str, scheme: str) -> Tokenizer:
    """One of Mistral's tokenizers as `transformers` converts it.

    `scheme` is legacy (the normalizer prepends a space), or a Metaspace's, with "split" for one that splits.
    """
    pieces = read_pieces(MISTRAL_DATA / model)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    merges = [
        (pieces[index].score, text[:cut], text[cut:])
        for text, index in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    pairs = [(left, right) for _, left, right in sorted(merges, key=lambda merge: -merge[0])]
    tokenizer = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    name, _, splits = scheme.partition(" ")
    if name == "legacy":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    else:
        tokenizer.pre_tokenizer = pre.Metaspace(SPACE, prepend_scheme=name, split=bool(splits))
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if name != "never":
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    tokenizer.add_special_tokens(
        [
            AddedToken(piece.text, special=True, normalized=False)
            for piece in pieces
            if piece.type in (PieceType.UNKNOWN, PieceType.CONTROL, PieceType.USER_DEFINED)
        ]
    )
    return tokenizer


REFERENCES: dict[str, Callable[[], Tokenizer]] = {
    **{split: partial(byte_level, split) for split in ("gpt2", "smollm", "llama3", "qwen2")},
    **{
        f"mistral {scheme}": partial(sentencepiece_tokenizer, MISTRAL_MODELS[0], scheme)
        for scheme in ("legacy", "first", "always", "never", "first split", "always split")
    },
    "mistral-v3 legacy": partial(sentencepiece_tokenizer, MISTRAL_MODELS[1], "legacy"),
}
