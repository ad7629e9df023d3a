# SPDX-License-Identifier: Apache-2.0
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quickthaw.handler import events
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.errors import FieldError
from quickthaw.handler.function import Function
from quickthaw.handler.session import Session
from quickthaw.handler.timeline import Timeline
from quickthaw.handler.warming import ENVIRONMENTS_LIMIT, HOLD_LIMIT_MS, Ping, Warmer, read_ping
from tests import shards
from tests.unit.handler.fakes import session as scripted
from tests.unit.handler.test_events import http_event

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:qt:live"
SCHEDULED = {
    "version": "0",
    "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2026-11-30T07:00:00Z",
    "region": "eu-west-1",
    "resources": ["arn:aws:events:eu-west-1:123456789012:rule/warm"],
    "detail": {},
}
PLUGIN = {"source": "serverless-plugin-warmup"}
WARMER = {"warmer": True, "concurrency": 3}
WARMER_OTHER = {"warmer": True, "__WARMER_INVOCATION__": 2, "__WARMER_CONCURRENCY__": 3, "concurrency": 3}
OURS = {"quickthaw": "warm", "n_environments": 3, "hold_ms": 20, "jitter_ms": 5}


class Context:
    aws_request_id = "8476a536"
    invoked_function_arn = ARN

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


@pytest.fixture
def opened(tmp_path: Path) -> Session:
    made = shards.make(tmp_path)
    for path in made.iterdir():
        shards.settle(path)  # so that what is verified is also remembered
    environ = {"QUICKTHAW_SHARDS": str(made), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    environ["QUICKTHAW_ENGINE"] = "interpreter"  # or torch would be imported, where it is installed
    return Session.open(HandlerConfig.from_env(environ))


def ping(session: Session, event: dict[str, Any], invoke: Any = None, left_ms: int = 60_000) -> Any:
    return Warmer(session, invoke).answer(event, Context(left_ms))


# --- what is one ---


@pytest.mark.parametrize("event", [OURS, SCHEDULED, PLUGIN, WARMER, WARMER_OTHER])
def test_a_ping(event: object) -> None:
    assert events.is_ping(event)


@pytest.mark.parametrize(
    "event",
    [
        None,
        "warm",
        {"prompt": "warm"},
        {"prompt": "?", "source": "somebody"},
        {"warmer": 1},
        {"quickthaw": "start"},
        {"source": ["aws.events"]},
        {**http_event('{"quickthaw": "warm"}'), **OURS},  # a client never sends one
    ],
)
def test_no_ping(event: object) -> None:
    assert not events.is_ping(event)


def test_what_pings_ask_for() -> None:
    assert read_ping(OURS) == Ping(3, 20, 5)
    assert read_ping({"quickthaw": "warm", "hold_ms": 0, "until_ms": 7}) == Ping(1, 0, 0, 7)
    assert read_ping(SCHEDULED) == read_ping(PLUGIN) == Ping()
    assert read_ping(WARMER) == Ping(3)
    assert read_ping(WARMER_OTHER) == Ping()  # or each would ask for others in turn
    assert read_ping({"warmer": True, "concurrency": 10**6}) == Ping(ENVIRONMENTS_LIMIT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_environments": 0},
        {"n_environments": ENVIRONMENTS_LIMIT + 1},
        {"hold_ms": HOLD_LIMIT_MS + 1},
        {"hold_ms": "20"},
        {"jitter_ms": -1},
        {"environments": 2},
    ],
)
def test_a_bad_ping_is_refused_by_name(opened: Session, wrong: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match=next(iter(wrong))):
        ping(opened, {"quickthaw": "warm", **wrong})
    answer = Function(opened, Timeline()).answer({"quickthaw": "warm", **wrong}, Context())
    assert answer["error"]["param"] == next(iter(wrong))


# --- what it does ---


def test_a_ping_does_what_no_request_should_wait_for(opened: Session) -> None:
    size_bytes = sum(shard.size_bytes for shard in opened.shards.manifest.shards)
    assert opened.bytes_read < size_bytes
    layers = sorted(Path(opened.config.layers.shards).glob("layer-*"))
    shards.drop_from_memory(*layers)

    warmer = Warmer(opened)
    first = warmer.answer({"quickthaw": "warm", "hold_ms": 0}, Context())
    second = warmer.answer(SCHEDULED, Context())

    layer_bytes = sum(path.stat().st_size for path in layers)
    assert (first["mapped_bytes"], first["read_bytes"]) == (size_bytes, layer_bytes)
    assert (second["mapped_bytes"], second["read_bytes"]) == (size_bytes, 0)
    assert (first["resident_bytes"], first["engine"]) == (size_bytes, "interpreter")
    assert (first["n_pings"], second["n_pings"]) == (1, 2)
    assert first["instance_id"] == second["instance_id"]
    assert second["age_s"] >= first["age_s"] >= 0
    stamps = (Path(opened.config.layers.cache) / "verified").read_text().splitlines()
    assert len(stamps) == len(opened.shards.manifest.shards)


def test_no_more_is_read_than_memory_holds(opened: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "0")
    answer = ping(opened, {"quickthaw": "warm", "hold_ms": 0})
    assert answer["read_bytes"] == 0
    assert answer["mapped_bytes"] == sum(shard.size_bytes for shard in opened.shards.manifest.shards)


def test_a_ping_ends_before_its_deadline(opened: Session) -> None:
    answer = ping(
        opened, {"quickthaw": "warm", "hold_ms": HOLD_LIMIT_MS, "jitter_ms": HOLD_LIMIT_MS}, left_ms=900
    )
    assert answer["read_bytes"] == 0
    assert answer["held_ms"] < 1000


def test_an_environment_is_held(opened: Session) -> None:
    assert ping(opened, {"quickthaw": "warm", "hold_ms": 30})["held_ms"] >= 30
    until_ms = int(time.time() * 1000) + 40
    ping(opened, {"quickthaw": "warm", "until_ms": until_ms})
    assert time.time() * 1000 >= until_ms
    assert ping(opened, {"quickthaw": "warm", "until_ms": 1})["held_ms"] < 1000  # long past


def test_pings_that_piled_up_hold_nobody_up(opened: Session) -> None:
    warmer = Warmer(opened)
    warmer.answer({"quickthaw": "warm", "hold_ms": 0}, Context())
    begin = time.monotonic()
    for _ in range(1000):
        warmer.answer({"quickthaw": "warm", "hold_ms": 100}, Context())
    assert time.monotonic() - begin < 50  # of the 100 seconds that they would hold it one by one


def test_a_shard_that_is_gone_is_told(opened: Session, capsys: pytest.CaptureFixture[str]) -> None:
    del capsys
    Path(opened.config.layers.shards, opened.shards.manifest.shards[-1].file).unlink()
    answer = Function(opened, Timeline()).answer({"quickthaw": "warm"}, Context())
    assert answer["error"]["code"] == "model_unavailable"


# --- the others ---


def test_the_function_asks_itself_for_the_others(opened: Session) -> None:
    invoked: list[tuple[str, dict[str, Any]]] = []
    before_ms = time.time() * 1000
    answer = ping(opened, OURS, lambda arn, event: invoked.append((arn, json.loads(event))))

    assert answer["n_invoked"] == 2
    assert [arn for arn, _ in invoked] == [ARN, ARN]
    for _, event in invoked:
        assert events.is_ping(event)
        assert read_ping(event).n_environments == 1
    until = {event["until_ms"] for _, event in invoked}
    assert len(until) == 1  # all let go together, so that N pings reach N environments
    assert until.pop() >= before_ms + 20
    assert time.time() * 1000 >= invoked[0][1]["until_ms"]


def _fail(arn: str, event: bytes) -> None:
    del arn, event
    raise PermissionError("not authorized to perform lambda:InvokeFunction")


def test_who_may_not_ask_itself_is_warm_all_the_same(opened: Session) -> None:
    before_bytes = opened.bytes_read
    answer = ping(opened, OURS, _fail)
    assert answer["n_invoked"] == 0
    assert answer["fan_out_error"].startswith("PermissionError: not authorized")
    assert answer["mapped_bytes"] > before_bytes


def test_without_boto3(opened: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    before_bytes = opened.bytes_read
    answer = ping(opened, OURS)
    assert (answer["n_invoked"], answer["mapped_bytes"] > before_bytes) == (0, True)
    assert "boto3" in answer["fan_out_error"]


# --- beside requests ---


def test_each_process_has_a_name_of_its_own(opened: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"quickthaw": "warm", "hold_ms": 0}
    assert ping(opened, quick)["instance_id"] != ping(opened, quick)["instance_id"]
    monkeypatch.setenv("AWS_LAMBDA_LOG_STREAM_NAME", "2026/11/30/[7]8a1f")
    assert ping(opened, quick)["instance_id"] == "2026/11/30/[7]8a1f"


def test_a_ping_is_no_request(opened: Session, capsys: pytest.CaptureFixture[str]) -> None:
    function = Function(opened, Timeline())
    function.answer({"quickthaw": "warm", "hold_ms": 0}, Context())
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["quickthaw"] == "ping"
    assert json.loads(line)["request_id"] == "8476a536"

    function.answer({"prompt": [1, 2], "max_tokens": 1}, Context())
    request, start = capsys.readouterr().out.splitlines()
    assert json.loads(request)["start"] == "cold"
    assert json.loads(start)["quickthaw"] == "start"


def test_a_ping_is_seen_before_anything_else() -> None:
    fake, engine = scripted("hi")
    del fake.shards.spans
    answer = Function(fake, Timeline()).answer({"quickthaw": "warm", "n_environments": 0}, Context())
    assert answer["error"]["param"] == "n_environments"
    assert engine.calls == []
