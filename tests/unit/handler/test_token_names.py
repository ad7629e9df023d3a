# SPDX-License-Identifier: Apache-2.0
from quickthaw.handler.token_names import TokenNames
from tests.unit.handler.fakes import EOS, ByteTokenizer


def test_a_token_has_a_text_or_bytes() -> None:
    names = TokenNames(ByteTokenizer())  # type: ignore[arg-type]
    assert [names.text(token_id) for token_id in (65, 0xC3, EOS)] == ["A", "bytes:\\xc3", "<end>"]
    assert names.byte_values(0xC3) == [0xC3]


def test_characters_are_counted_where_they_begin() -> None:
    names = TokenNames(ByteTokenizer())  # type: ignore[arg-type]
    assert [names.n_characters(byte) for byte in "aé€".encode()] == [1, 1, 0, 1, 0, 0]
    assert names.n_characters(EOS) == 0  # it is not shown


def test_without_a_tokenizer_there_are_ids() -> None:
    names = TokenNames(None)
    assert (names.text(7), names.byte_values(7), names.n_characters(7)) == ("token_id:7", None, 0)
