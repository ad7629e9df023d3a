# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from time import monotonic_ns

import pytest

from quickthaw.handler.errors import BusyError, ContextLengthError, FieldError
from quickthaw.handler.generation import Generation, Piece
from quickthaw.layers.arrays import Logits
from quickthaw.layers.errors import ChatRefusedError, ShardMissingError, ShardReplacedError
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.sampler import Sampling
from tests.unit.handler.fakes import EOS, NONE_CACHED, Shards, session


def answer(script: str | list[int], **fields: object) -> list[Piece]:
    request = Generation(**{"max_tokens": 50, "prompts": ["?"], **fields})  # type: ignore[arg-type]
    return list(session(script)[0].generate(request))


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_an_answer_ends_with_its_end_token() -> None:
    pieces = answer("hey")
    assert [piece.token_id for piece in pieces] == [*b"hey", EOS]
    assert [piece.text for piece in pieces] == ["h", "e", "y", ""]
    assert [piece.finish_reason for piece in pieces] == [None, None, None, "stop"]


def test_an_answer_ends_at_its_length() -> None:
    pieces = answer("hello", max_tokens=2)
    assert (text(pieces), pieces[-1].finish_reason) == ("he", "length")


def test_the_engine_gets_the_prompt_and_then_each_token() -> None:
    fake, engine = session("ab")
    list(fake.generate(Generation(max_tokens=9, prompts=[[7, 8]])))
    assert engine.calls == [[7, 8], [ord("a")], [ord("b")]]


def test_nothing_is_computed_before_it_is_asked_for_or_after_closing() -> None:
    fake, engine = session("abc")
    completion = fake.generate(Generation(max_tokens=9, prompts=["?"]))
    assert engine.calls == []
    next(completion)
    completion.close()
    assert list(completion) == []
    assert len(engine.calls) == 1


def test_a_character_in_pieces_appears_whole() -> None:
    pieces = answer("é€")
    assert [piece.text for piece in pieces] == ["", "é", "", "", "€", ""]


def test_half_a_character_at_the_end_is_replaced() -> None:
    assert text(answer([ord("a"), 0xE2], max_tokens=2)) == "a\ufffd"


@pytest.mark.parametrize(
    ("script", "stop", "shown", "reason"),
    [
        ("one. two", (". ",), "one", "stop"),
        ("one. two", (".x",), "one. two", "stop"),  # its end token came
        ("one.", (". ",), "one.", "stop"),
        ("a€b", ("€",), "a", "stop"),
        ("abcd", ("bcd", "c"), "ab", "stop"),
    ],
)
def test_a_stop_string_never_shows(script: str, stop: tuple[str, ...], shown: str, reason: str) -> None:
    pieces = answer(script, stop=stop)
    assert (text(pieces), pieces[-1].finish_reason) == (shown, reason)


def test_what_was_held_back_comes_out_at_the_length() -> None:
    pieces = answer("ab..", max_tokens=4, stop=("...",))
    assert (text(pieces), pieces[-1].finish_reason) == ("ab..", "length")


def test_a_stop_string_on_the_last_token_is_a_stop() -> None:
    assert answer("ab", max_tokens=2, stop=("b",))[-1] == Piece(ord("b"), "", "stop")


def test_a_deadline_that_has_passed_ends_the_answer_before_its_first_token() -> None:
    assert answer("abc", deadline_ns=0) == [Piece(None, "", "deadline")]


def test_a_deadline_that_comes_while_the_prompt_is_computed_ends_the_answer() -> None:
    opened, engine = session("abc")

    def forward(_token_ids: Sequence[int], _cache: KeyValueCache) -> Logits:
        while True:  # a prompt without an end
            engine.before_layer()

    engine.forward = forward  # type: ignore[method-assign]
    request = Generation(max_tokens=2, prompts=["x"], deadline_ns=monotonic_ns() + 250_000_000)
    assert list(opened.generate(request)) == [Piece(None, "", "deadline")]


def test_usage_counts_tokens() -> None:
    completion = session("abc")[0].generate(Generation(max_tokens=2, prompts=["four"]))
    list(completion)
    tokens = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert completion.usage() == {**tokens, **NONE_CACHED}


def test_max_tokens_is_cut_to_the_room_that_is_left() -> None:
    fake, _ = session([1] * 200)
    pieces = list(fake.generate(Generation(max_tokens=10**9, prompts=[[1] * 90])))
    assert (len(pieces), pieces[-1].finish_reason) == (10, "length")


def test_the_context_may_be_configured_smaller_but_not_larger() -> None:
    assert session(environ={"QUICKTHAW_CONTEXT_TOKENS": "8"})[0].context_tokens == 8
    assert session(environ={"QUICKTHAW_CONTEXT_TOKENS": "1000"})[0].context_tokens == 100


@pytest.mark.parametrize(
    "fields",
    [{"prompts": ["x" * 100]}, {"prompts": [[1] * 100]}, {"messages": [{"role": "u" * 98, "content": ""}]}],
)
def test_a_prompt_that_does_not_fit_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ContextLengthError, match="expected at most 99 tokens, found 100"):
        session()[0].generate(Generation(max_tokens=1, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["", []])
def test_a_prompt_of_no_tokens_is_refused(prompt: str | list[int]) -> None:
    with pytest.raises(FieldError, match="prompt: expected at least one token, found none"):
        session()[0].generate(Generation(max_tokens=1, prompts=[prompt]))


@pytest.mark.parametrize("token_id", [-1, 257, 10**30])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    with pytest.raises(FieldError, match=r"prompt\[1\]: expected a token id from 0 to 256, found"):
        session()[0].generate(Generation(max_tokens=1, prompts=[[5, token_id]]))


def test_a_model_without_a_tokenizer_answers_ids_with_ids() -> None:
    fake, _ = session("hi", tokenizer=False)
    assert list(fake.generate(Generation(max_tokens=2, prompts=[[1]]))) == [
        Piece(104, ""),
        Piece(105, "", "length"),
    ]
    with pytest.raises(FieldError, match="this model has no tokenizer"):
        fake.generate(Generation(max_tokens=2, prompts=["text"]))
    with pytest.raises(FieldError, match="stop: expected none: this model has no tokenizer"):
        fake.generate(Generation(max_tokens=2, prompts=[[1]], stop=("x",)))


def test_messages_go_through_the_template() -> None:
    fake, engine = session("")
    list(fake.generate(Generation(max_tokens=1, messages=[{"role": "user", "content": "hi"}])))
    assert bytes(engine.calls[0]) == b"user:hi\n"


def test_messages_without_a_template_are_refused() -> None:
    with pytest.raises(FieldError, match="this model has no chat template"):
        session(chat=None)[0].generate(Generation(max_tokens=1, messages=[{"role": "user", "content": "hi"}]))


def test_what_the_template_refuses_is_refused_at_once() -> None:
    fake, _ = session(chat="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ChatRefusedError, match="roles must alternate"):
        fake.generate(Generation(max_tokens=1, messages=[{"role": "user", "content": "hi"}]))


def test_an_engine_error_comes_out_where_the_token_was_asked_for() -> None:
    completion = session([1, ShardMissingError("gone")])[0].generate(Generation(max_tokens=3, prompts=[[1]]))
    next(completion)
    with pytest.raises(ShardMissingError):
        next(completion)


def test_a_seed_repeats_an_answer() -> None:
    def sampled() -> list[Piece]:
        return answer([65] * 20, sampling=Sampling(2.0, seed=5), max_tokens=20)

    assert sampled() == sampled()


def test_the_spans_are_handed_over_once() -> None:
    fake, _ = session()
    assert [span.name for span in fake.take_spans()] == ["embedding"]
    assert fake.take_spans() == []


# --- choices ---


def test_a_prompt_is_computed_once_for_all_its_choices() -> None:
    fake, engine = session("aaabbb")
    pieces = list(fake.generate(Generation(max_tokens=3, prompts=[[7, 8]], n_choices=2)))
    assert engine.calls == [[7, 8], *[[ord("a")], [ord("a")]], *[[ord("a")], [ord("b")]]]
    assert [piece.choice for piece in pieces] == [0, 0, 0, 1, 1, 1]


def test_after_the_deadline_each_choice_and_prompt_ends() -> None:
    pieces = answer("abc", deadline_ns=0, prompts=["x", "y"], n_choices=2)
    assert [(piece.choice, piece.finish_reason) for piece in pieces] == [(n, "deadline") for n in range(4)]


def test_only_one_answer_is_under_way() -> None:
    fake, _ = session("abc")
    request = Generation(max_tokens=3, prompts=["?"])
    running = fake.generate(request)
    with pytest.raises(BusyError):
        fake.generate(request)
    running.close()
    running = fake.generate(request)
    list(running)
    running = fake.generate(request)
    del running  # nobody can finish it any more
    assert list(fake.generate(request))


def test_a_failed_answer_is_no_longer_under_way() -> None:
    fake, _ = session([ShardMissingError("gone"), 65])
    failed = fake.generate(Generation(max_tokens=3, prompts=["?"]))
    with pytest.raises(ShardMissingError):
        next(failed)
    assert next(fake.generate(Generation(max_tokens=3, prompts=["?"]))).text == "A"


# --- log probabilities ---


def test_log_probabilities_are_the_raw_logits_whatever_is_sampled() -> None:
    sampling = Sampling(0.0, logit_bias=((66, 100.0),))
    piece = answer("A", sampling=sampling, n_top_logprobs=1, max_tokens=1)[0]
    assert piece.token_id == 66
    assert piece.logprobs[0] == (66, -50.0, ((65, 0.0),))


def test_an_echo_scores_each_token_of_the_prompt() -> None:
    fake, engine = session([2, 9, 4, 65])
    request = Generation(1, [[1, 2, 3, 4]], is_echoed=True, n_top_logprobs=1)
    echo, said = fake.generate(request)
    assert engine.calls == [[1], [2], [3], [4]]
    assert [each.logprob for each in echo.logprobs] == [None, 0.0, -50.0, 0.0]
    assert [each.top[0][0] for each in echo.logprobs[1:]] == [2, 9, 4]
    assert (echo.token_id, echo.text, said.text) == (None, "\1\2\3\4", "A")


def test_a_bias_for_what_is_no_token_is_refused() -> None:
    with pytest.raises(FieldError, match=r"logit_bias\.257: expected a token id from 0 to 256, found 257"):
        session()[0].generate(Generation(1, ["?"], sampling=Sampling(logit_bias=((257, 1.0),))))


def test_tables_that_changed_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(shards: Shards) -> None:
        raise ShardReplacedError("changed", where=shards.manifest.name)

    monkeypatch.setattr(Shards, "check_unchanged", fail)
    with pytest.raises(ShardReplacedError):
        session()[0].generate(Generation(1, ["?"]))
