# SPDX-License-Identifier: Apache-2.0
"""The compiled engine in the function: refused, chosen, taking over between two requests, captured."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from quickthaw.handler import takeover
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.decoding import Engine
from quickthaw.handler.generation import Generation
from quickthaw.handler.session import Session
from quickthaw.layers.shard_set import ShardSet
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from tests import shards
from tests.contract.engines import started
from tests.contract.fronts import OURS
from tests.contract.functions import running
from tests.contract.test_cold_path_imports import SOURCE

PROMPT = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}


@pytest.fixture
def environ(tmp_path: Path, smollm2_int4_shards: Path) -> dict[str, str]:
    return {"QUICKTHAW_SHARDS": str(smollm2_int4_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}


def tiny(tmp_path: Path, **environ: str) -> Session:
    directory = shards.make(tmp_path)
    found = {"QUICKTHAW_SHARDS": str(directory), "QUICKTHAW_CACHE": str(tmp_path / "cache"), **environ}
    return Session.open(HandlerConfig.from_env(found))


def test_a_ping_lets_the_compiled_engine_take_over_and_a_request_never(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    environ["QUICKTHAW_THREADS"] = "1"  # of torch's threads each waits for the others, on a busy machine long
    with running(tmp_path, SOURCE, environ=environ) as function:
        first = function.ask_json(PROMPT)
        assert "torch" not in json.loads(function.ask("modules"))
        ping = function.ask_json({"quickthaw": "warm"})
        second = function.ask_json(PROMPT)
    assert (first["engine"], ping["engine"], second["engine"]) == ("interpreter", "compiled", "compiled")
    assert second["text"].startswith(" Paris")
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == first["usage"]["prompt_tokens"] - 1


@pytest.mark.skipif(sys.platform != "linux", reason="the zygote needs Linux")
def test_clones_of_a_process_that_has_torch_answer_right(environ: dict[str, str]) -> None:
    answers = []
    with ZygoteEngine(OURS) as engine:
        for _ in range(2):
            with started(engine, **environ, QUICKTHAW_THREADS="2") as function:
                answers += [function.ask_json(PROMPT), function.ask_json(PROMPT)]
    assert {answer["engine"] for answer in answers} == {"compiled"}
    assert len({answer["text"] for answer in answers}) == 1
    assert answers[0]["text"].startswith(" Paris")


def test_compiled_is_there_from_the_first_request_on(tmp_path: Path) -> None:
    assert tiny(tmp_path, QUICKTHAW_ENGINE="compiled").engine_name == "compiled"


@pytest.mark.parametrize("n_requests", [1, 2, 7])
def test_a_conversation_goes_on_with_the_other_engine(
    n_requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "_token_ns", lambda engine, _: 1 if engine.name == "compiled" else 2)
    alone = tiny(tmp_path / "alone", QUICKTHAW_ENGINE="interpreter")
    session = tiny(tmp_path / "handed over")
    said = [3, 4, 5]
    for number in range(n_requests + 2):
        if number == n_requests:
            session.upgrade()
        request = Generation(4, [said])
        expected, completion = list(alone.generate(request)), session.generate(request)
        assert [piece.token_id for piece in completion] == [piece.token_id for piece in expected]
        n_cached = completion.usage()["prompt_tokens_details"]["cached_tokens"]
        assert n_cached == (0 if number == 0 else len(said) - 2)  # the last token said was not computed
        said = [*said, *[piece.token_id for piece in expected if piece.token_id is not None], 9]
        assert session.engine_name == ("compiled" if number >= n_requests else "interpreter")


@pytest.mark.parametrize("is_faster", [True, False])
def test_only_what_is_faster_takes_over(
    is_faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token_ns(engine: Engine, _: ShardSet) -> int:
        return 1 if (engine.name == "compiled") is is_faster else 2

    monkeypatch.setattr(takeover, "_token_ns", token_ns)
    session = tiny(tmp_path)
    session.upgrade()
    assert session.engine_name == ("compiled" if is_faster else "interpreter")


@pytest.mark.parametrize("choice", ["interpreter", "auto"])
def test_nothing_takes_over_while_an_answer_is_on_its_way(choice: str, tmp_path: Path) -> None:
    session = tiny(tmp_path, QUICKTHAW_ENGINE=choice)
    completion: Any = session.generate(Generation(4, [[1, 2]]))
    next(completion)
    session.upgrade()
    assert session.engine_name == "interpreter"
