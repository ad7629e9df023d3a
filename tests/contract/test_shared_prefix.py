# SPDX-License-Identifier: Apache-2.0
"""The real model with a system prompt: computed once by a process, or once for all by a state image."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from quickthaw.handler.command.image_command import make_image
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.function import Function
from quickthaw.handler.generation import Generation, Piece
from quickthaw.handler.session import Session
from quickthaw.handler.timeline import Timeline
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from tests.contract.engines import started
from tests.contract.fronts import OURS
from tests.unit.handler.test_events import http_event
from tests.unit.handler.test_function import Context
from tests.unit.handler.test_prefix import assert_same

SYSTEM = {
    "role": "system",
    "content": "You are a museum guide. Answer in one short sentence, name the year if there is one, never "
    "guess, and say so when you do not know. Be friendly to children and patient with adults.",
}
QUESTIONS = ["Who painted the Mona Lisa?", "What is a fresco?"]
N_SYSTEM_TOKENS = 40  # at least


@pytest.fixture
def environ(smollm2_shards: Path, tmp_path: Path) -> dict[str, str]:
    return {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}


def opened(environ: dict[str, str]) -> Session:
    fixed = {"QUICKTHAW_VERIFY": "never", "QUICKTHAW_THREADS": "1"}  # BLAS has threads of its own here
    return Session.open(HandlerConfig.from_env({**fixed, **environ}))


def ask(session: Session, question: str) -> tuple[list[Piece], int]:
    messages = [SYSTEM, {"role": "user", "content": question}]
    completion = session.generate(Generation(8, messages=messages, n_top_logprobs=2))
    pieces = list(completion)
    session.forget()
    return pieces, completion.usage()["prompt_tokens_details"]["cached_tokens"]


def test_a_process_computes_its_system_prompt_once(environ: dict[str, str]) -> None:
    """As a clone does, of a process that was captured after its warm-up event."""
    session = opened(environ)
    _, n_cached = ask(session, "Hi")
    assert n_cached == 0
    for question in QUESTIONS:
        pieces, n_cached = ask(session, question)
        fresh, _ = ask(opened({**environ, "QUICKTHAW_KEPT_TOKENS": "0"}), question)
        assert_same(pieces, fresh)
        assert n_cached > N_SYSTEM_TOKENS


def test_a_start_with_an_image_does_not_compute_it(environ: dict[str, str], tmp_path: Path) -> None:
    image = tmp_path / "image"
    report = make_image(image, opened(environ).config, {"messages": [SYSTEM]})
    for question in QUESTIONS:
        pieces, n_cached = ask(opened({**environ, "QUICKTHAW_STATE_IMAGE": str(image)}), question)
        assert_same(pieces, ask(opened(environ), question)[0])
        assert n_cached == report.n_tokens > N_SYSTEM_TOKENS


@pytest.mark.skipif(sys.platform != "linux", reason="the zygote needs Linux")
def test_a_clone_begins_with_what_the_warm_up_event_computed(environ: dict[str, str], tmp_path: Path) -> None:
    def chat(question: str) -> dict[str, object]:
        return {"messages": [SYSTEM, {"role": "user", "content": question}], "max_tokens": 2}

    event = tmp_path / "event.json"
    event.write_text(json.dumps(chat("Hi")))
    with ZygoteEngine(OURS) as engine:
        for question in QUESTIONS:  # each clone answers its first one
            with started(engine, **environ, QUICKTHAW_WARMUP_EVENT=str(event)) as function:
                usage = function.ask_json(chat(question))["usage"]
            n_cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert N_SYSTEM_TOKENS < n_cached < usage["prompt_tokens"]


def test_the_usage_says_what_was_cached(environ: dict[str, str]) -> None:
    function = Function(opened(environ), Timeline())

    def usage(question: str) -> dict[str, Any]:
        body = {"messages": [SYSTEM, {"role": "user", "content": question}], "max_tokens": 2}
        response = function.answer(http_event(json.dumps(body), path="/v1/chat/completions"), Context())
        found: dict[str, Any] = json.loads(response["body"])["usage"]
        return found

    first, second = usage(QUESTIONS[0]), usage(QUESTIONS[1])
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    assert N_SYSTEM_TOKENS < second["prompt_tokens_details"]["cached_tokens"] < second["prompt_tokens"]
