# SPDX-License-Identifier: Apache-2.0
"""SmolLM2's tokens, as `tokenizers` gives them for its vocabulary after Digits and GPT-2's split."""

from __future__ import annotations

import json
from pathlib import Path

from quickthaw.layers.text.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parent / "tokenizer_smollm2.json").read_text())


def test_tokens_and_text(smollm2_shards: Path) -> None:
    tokenizer = Tokenizer.open(smollm2_shards / "tokenizer.bin")
    for row in GOLDEN:
        assert tokenizer.encode(row["text"]) == row["ids"]
        # SmolLM2 has no token for some control characters: they vanish.
        assert tokenizer.decode(row["ids"], skip_special=False) == row["text"].replace("\x04", "")


def test_its_special_tokens(smollm2_shards: Path) -> None:
    tokenizer = Tokenizer.open(smollm2_shards / "tokenizer.bin")
    assert (tokenizer.n_tokens, tokenizer.bos_token_id, tokenizer.eos_token_id) == (49152, 1, 2)
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.decode([1, 504, 2]) == tokenizer.decode([504])
