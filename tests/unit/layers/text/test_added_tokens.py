# SPDX-License-Identifier: Apache-2.0
"""Added tokens are found where the `tokenizers` package finds them, in one pass over the text."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from quickthaw.layers.text.added_tokens import AddedToken, AddedTokens

CONTENTS = ("<a>", "<b>", "x y")
SPACES = (
    " ",
    "\n",
    "\n\n",
)  # as tokens of a model whose others take white space along, they end the reference
PARTS = [*CONTENTS, *SPACES, "\t", "\u3000", "\x1c", "<", "text", " \n \n "]
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=len(CONTENTS), max_size=len(CONTENTS))


class WatchedText(str):
    """Counts the characters that are looked at."""

    n_seen = 0

    def __getitem__(self, key: object) -> str:
        part = super().__getitem__(key)  # type: ignore[index]
        self.n_seen += len(part)
        return part


def both(flags: list[tuple[bool, bool]]) -> tuple[AddedTokens, tokenizers.Tokenizer]:
    reference = tokenizers.Tokenizer(models.BPE())
    ours = []
    for index, (content, (lstrip, rstrip)) in enumerate(zip(CONTENTS, flags, strict=True)):
        token = tokenizers.AddedToken(content, lstrip=lstrip, rstrip=rstrip, normalized=False)
        reference.add_tokens([token])
        ours.append(AddedToken(index, content, lstrip=lstrip, rstrip=rstrip))
    return AddedTokens(ours), reference


@given(flags=FLAGS, text=st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_tokens_are_the_references(flags: list[tuple[bool, bool]], text: str) -> None:
    ours, reference = both(flags)
    found = [part.id for _, part in ours.split(text) if isinstance(part, AddedToken)]
    assert found == reference.encode(text).ids


@pytest.mark.parametrize("unit", [*CONTENTS, *SPACES, "<a> ", " <a>", " <a> <b>\n"])
def test_white_space_is_gone_through_once(unit: str) -> None:
    ours = AddedTokens([AddedToken(i, c, lstrip=True, rstrip=True) for i, c in enumerate(CONTENTS + SPACES)])
    text = WatchedText(unit * 2000)
    assert list(ours.split(text))
    assert text.n_seen <= 20 * len(text)
