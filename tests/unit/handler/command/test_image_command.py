# SPDX-License-Identifier: Apache-2.0
"""`quickthaw snapshot image`, and the start that it is for."""

import json
from pathlib import Path

import pytest

from quickthaw.handler import cli
from tests import shards


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKTHAW_CACHE", str(tmp_path / "cache"))


def test_a_start_uses_what_was_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard_set, image, event = shards.make(tmp_path), tmp_path / "image", tmp_path / "event.json"
    event.write_text(json.dumps({"prompt": [5, 6, 7]}))
    assert cli.main(["snapshot", "image", str(image), "--shards", str(shard_set), "--event", str(event)]) == 0
    assert f"{image} now holds 3 tokens of prompt and " in capfd.readouterr().out

    monkeypatch.setenv("QUICKTHAW_STATE_IMAGE", str(image))
    asked = ["invoke", "--shards", str(shard_set), "--prompt-ids", "5,6,7,8", "--max-tokens", "3", "--json"]
    assert cli.main(asked) == 0
    with_image = json.loads(capfd.readouterr().out)
    assert with_image["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert {"state image", "prefix"} <= {phase["name"] for phase in with_image["phases"]}

    monkeypatch.delenv("QUICKTHAW_STATE_IMAGE")
    assert cli.main(asked) == 0
    assert json.loads(capfd.readouterr().out)["token_ids"] == with_image["token_ids"]


def test_a_start_says_why_it_goes_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard_set, image = shards.make(tmp_path), tmp_path / "image"
    image.write_bytes(b"something else" * 9)
    monkeypatch.setenv("QUICKTHAW_STATE_IMAGE", str(image))
    assert cli.main(["invoke", "--shards", str(shard_set), "--prompt-ids", "5,6"]) == 0
    assert "state image ignored: not a state image" in capfd.readouterr().err


def test_a_system_prompt_is_enough(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shard_set, image = shards.make_chat(tmp_path), tmp_path / "image"
    made = ["snapshot", "image", str(image), "--shards", str(shard_set)]
    assert cli.main([*made, "--chat-system", "Be brief."]) == 0
    assert image.exists()
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"messages": [{"role": "system", "content": "Be brief."}]}))
    assert cli.main([*made, "--event", str(event)]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first.partition(" tokens")[0] == second.partition(" tokens")[0]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--chat-system", "Be brief."], 64, "this model has no chat template"),
        ([], 2, "one of the arguments --chat-system --event is required"),
    ],
)
def test_what_cannot_be_made_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, message: str
) -> None:
    made = ["snapshot", "image", str(tmp_path / "image"), "--shards", str(shards.make(tmp_path)), *arguments]
    try:
        found = cli.main(made)
    except SystemExit as exc:  # argparse's way
        found = int(str(exc.code))
    assert found == exit_code
    assert message in capfd.readouterr().err
    assert not (tmp_path / "image").exists()
