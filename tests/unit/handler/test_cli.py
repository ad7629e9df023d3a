# SPDX-License-Identifier: Apache-2.0
"""The command, from its arguments to its exit code, on a tiny model."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from quickthaw.handler import cli
from quickthaw.handler.command.printer import FOR_TERMINALS
from tests import models, shards
from tests.contract.fronts import wait_until
from tests.processes import is_gone


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard set without a tokenizer."""
    return shards.make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKTHAW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def _shards_are_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKTHAW_SHARDS", str(tmp_path / "absent"))


def _invoke(shards: Path, *arguments: str) -> int:
    return cli.main(["invoke", "--shards", str(shards), *arguments])


def test_invoke_prints_one_json_object(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _invoke(tiny, "--prompt-ids", "1,2,3", "--max-tokens", "4", "--json") == 0

    document = json.loads(capfd.readouterr().out)
    assert len(document["token_ids"]) == 4
    assert document["finish_reason"] == "length"
    assert document["engine"] == "interpreter"
    assert document["start"] == "cold"
    assert 0 < document["timeline_ms"]["ready"] < document["timeline_ms"]["first_token"]
    assert document["bytes_read"] == sum(path.stat().st_size for path in tiny.glob("*.safetensors"))
    assert document["private_mib"] > 0
    assert document["major_faults"] >= 0


def test_invoke_shows_the_timeline(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert _invoke(tiny, "--prompt-ids", "1", "--max-tokens", "1", "--stream", "--trace", str(trace)) == 0

    table = capfd.readouterr().err
    for phase in ("interpreter start", "awslambdaric", "ready", "first token", "x layer-N"):
        assert phase in table
    assert {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]} == {"M", "X"}


def test_an_event_from_a_file(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"prompt": [1, 2], "max_tokens": 9}))

    assert _invoke(tiny, "--event", str(event), "--max-tokens", "2", "--json") == 0

    assert len(json.loads(capfd.readouterr().out)["token_ids"]) == 2


def test_an_event_from_standard_input(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b'{"prompt": [1, 2], "max_tokens": 3}')))

    assert _invoke(tiny, "--event", "-", "--json") == 0

    assert len(json.loads(capfd.readouterr().out)["token_ids"]) == 3


def test_the_version_is_the_packages(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])

    assert capfd.readouterr().out == f"quickthaw {version('quickthaw')}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt-ids", "1", "--max-tokens", "0"], "max_tokens"),
        (["--prompt-ids", "999999"], "prompt[0]"),
        (["--prompt", "text"], "this model has no tokenizer"),
        (["--chat", "text"], "this model has no chat template"),
    ],
)
def test_a_bad_request_is_one_line(
    tiny: Path, arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _invoke(tiny, *arguments) != 0

    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("quickthaw: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", [["inspect"], ["invoke", "--prompt-ids", "1", "--shards"]])
def test_a_path_that_is_no_shard_set(
    tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, str(tmp_path / "absent")]) == 65
    assert capfd.readouterr().err == (
        f"quickthaw: no shard set: {tmp_path}/absent/manifest.json: found No such file or directory; "
        "name a directory made by `quickthaw shard`\n"
    )

    (tmp_path / "config.json").touch()
    (tmp_path / "model.gguf").touch()
    for checkpoint in (tmp_path, tmp_path / "model.gguf"):
        assert cli.main([*command, str(checkpoint)]) == 65
        assert capfd.readouterr().err == (
            f"quickthaw: this is a checkpoint: {checkpoint}; "
            f"split it first with `quickthaw shard {checkpoint} OUT`\n"
        )


@pytest.mark.usefixtures("_shards_are_absent")
def test_the_environments_shards_are_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["invoke", "--prompt-ids", "1"]) == 69

    errors = capfd.readouterr().err
    assert errors.startswith("quickthaw: ManifestError: cannot read the manifest")
    assert errors.count("\n") == 1


@pytest.mark.usefixtures("_shards_are_absent")
def test_debug_shows_what_the_function_logged(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--debug", "invoke", "--prompt-ids", "1"]) == 69

    assert "[ERROR] ManifestError" in capfd.readouterr().err


def test_an_event_may_be_anything_and_the_function_says_so(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    event = tmp_path / "event.json"
    event.write_text("[1]")
    assert _invoke(tiny, "--event", str(event)) == 70

    assert "invalid_request_error" in capfd.readouterr().err


def test_an_event_file_that_is_not_there(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        _invoke(tiny, "--event", "/nowhere/event.json")

    assert "/nowhere/event.json" in capfd.readouterr().err


def test_debug_adds_the_stack(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--debug", "inspect", str(tmp_path)]) != 0

    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["invoke"], ["invoke", "--prompt", "a", "--chat", "b"], ["invoke", "--prompt-ids", "1,x"], ["thaw"]],
)
def test_a_wrong_command_line(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(arguments)

    assert exit_info.value.code == 2
    assert "usage: quickthaw" in capfd.readouterr().err


def test_shard_and_inspect(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = models.config("llama")
    source = models.write_checkpoint(tmp_path / "source", config, models.tensors(config))
    out = tmp_path / "out"

    assert cli.main(["shard", str(source), str(out), "--dtype", "f32"]) == 0
    assert "now holds" in capfd.readouterr().out
    assert cli.main(["shard", str(source), str(out), "--dtype", "f32"]) == 0
    assert "already holds" in capfd.readouterr().out

    assert cli.main(["inspect", str(out), "--verify"]) == 0
    shown = capfd.readouterr().out
    assert "embedding.safetensors" in shown
    assert shards.sha256(out / "layer-000.safetensors") in shown

    shards.flip_bit(out / "layer-000.safetensors")
    assert cli.main(["inspect", str(out)]) == 0
    assert cli.main(["inspect", str(out), "--verify"]) == 65
    assert "layer-000.safetensors" in capfd.readouterr().err


def test_shard_says_what_the_checkpoint_asks_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = models.config("llama")
    source = models.write_checkpoint(tmp_path / "source", config, models.tensors(config))
    (source / "generation_config.json").write_text('{"repetition_penalty": 1.1}')

    assert cli.main(["shard", str(source), str(tmp_path / "out")]) == 0
    assert capfd.readouterr().err == (
        "quickthaw: generation_config.json asks for repetition_penalty 1.1, which is not applied: "
        "send it with the request\n"
    )


def test_control_characters_do_not_reach_a_terminal() -> None:
    shown = "a\x1b[2J\tb\x07\x9b\n".translate(FOR_TERMINALS)

    assert shown == "a\N{REPLACEMENT CHARACTER}[2J\tb\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\n"


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    command = [sys.executable, "-c", "import sys; from quickthaw.handler.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, "inspect", str(tiny)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (141, "")


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["Ctrl-C", "SIGTERM", "SIGKILL"],
)
def test_the_end_of_the_command_is_the_functions_too(
    tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    (tmp_path / "function.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "def handle(event, context):\n    Path('pid').write_text(f'{os.getpid()}.')\n    time.sleep(60)\n"
    )
    command = (
        "import functools, sys\n"
        "from quickthaw.handler import cli\n"
        "from quickthaw.handler.command import invoke\n"
        "invoke.run_cold_start = functools.partial(invoke.run_cold_start, handler='function.handle')\n"
        "sys.exit(cli.main(['invoke', '--prompt', 'x']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    pid = _wait_for_text(tmp_path / "pid")
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (exit_code, "")
    wait_until(lambda: is_gone(int(pid.rstrip("."))))


def _wait_for_text(path: Path, timeout_s: float = 30.0) -> str:
    """The file's text, once it ends in a full stop."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()).endswith("."):
            return text
        time.sleep(0.01)
    raise TimeoutError(path)
