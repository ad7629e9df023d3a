# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from quickthaw.snapshot import fingerprint
from quickthaw.snapshot.fingerprint import Fingerprint, differences

ENVIRON = {"QUICKTHAW_MAX_TOKENS": "7", "OMP_NUM_THREADS": "1", "HOME": "/root"}


@pytest.fixture
def task_root(tmp_path: Path) -> Path:
    for name in ("handler.py", "package/inner.py", "data.txt", ".venv/lib.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/manifest.json").write_text("{}")
    return tmp_path


def take(task_root: Path, environ: Mapping[str, str] = ENVIRON) -> Fingerprint:
    return fingerprint.take(
        "handler.handle", str(task_root), {**environ, "QUICKTHAW_SHARDS": str(task_root / "shards")}
    )


def test_nothing_has_changed_and_json_keeps_it(task_root: Path) -> None:
    taken = take(task_root)
    assert set(taken["code"]) == {"handler.py", "package/inner.py"}
    assert differences(json.loads(json.dumps(taken)), take(task_root)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "handler.py").write_text("2"), "handler.py has changed"),
        (lambda root: (root / "package/inner.py").unlink(), "package/inner.py is gone"),
        (lambda root: (root / "new.py").write_text(""), "new.py is new"),
        (lambda root: (root / "package/new.py").write_text(""), "package/new.py is new"),
        (lambda root: (root / "data.txt").write_text("2"), None),
        (
            lambda root: (root / "shards/manifest.json").write_text("[]"),
            "{root}/shards/manifest.json has changed",
        ),
        (lambda root: (root / "shards/manifest.json").unlink(), "{root}/shards/manifest.json is gone"),
    ],
)
def test_a_file_that_changes(task_root: Path, change: Callable[[Path], object], words: str | None) -> None:
    before = take(task_root)
    change(task_root)
    expected = [] if words is None else [words.format(root=task_root)]
    assert differences(before, take(task_root)) == expected


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("QUICKTHAW_MAX_TOKENS", "8", ["QUICKTHAW_MAX_TOKENS was 7, is 8"]),
        ("QUICKTHAW_LOG", "off", ["QUICKTHAW_LOG is new: off"]),
        ("PYTHONPATH", "/x", ["PYTHONPATH is new: /x"]),
        ("HOME", "/home", []),
        ("AWS_SESSION_TOKEN", "rotated", []),
        ("QUICKTHAW_API_KEYS", "rotated", []),
    ],
)
def test_a_variable_that_changes(task_root: Path, name: str, value: str, words: list[str]) -> None:
    assert differences(take(task_root), take(task_root, {**ENVIRON, name: value})) == words


def test_a_variable_that_is_gone(task_root: Path) -> None:
    assert differences(take(task_root), take(task_root, {"OMP_NUM_THREADS": "1"})) == [
        "QUICKTHAW_MAX_TOKENS is gone; it was 7"
    ]


def test_a_package_and_an_interpreter_that_change(task_root: Path) -> None:
    before, now = take(task_root), take(task_root)
    assert before["packages"]["numpy"].startswith("2.")
    now["packages"] = {**now["packages"], "numpy": "3.0"}
    now["interpreter"] = {**now["interpreter"], "executable": "/usr/bin/python9"}
    executable = before["interpreter"]["executable"]
    assert differences(before, now) == [
        f"the interpreter's executable was {executable}, is /usr/bin/python9",
        f"numpy was {before['packages']['numpy']}, is 3.0",
    ]


def test_the_warm_up_event_is_part_of_it(task_root: Path) -> None:
    event = task_root / "event.json"
    event.write_text("1")
    environ = {"QUICKTHAW_WARMUP_EVENT": str(event)}
    before = take(task_root, environ)
    event.write_text("2")
    assert differences(before, take(task_root, environ)) == [f"{event} has changed"]


def test_a_package_that_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = take(tmp_path)
    (tmp_path / "thing-1.0.dist-info").mkdir()
    assert differences(before, take(tmp_path)) == ["thing is new: 1.0"]


def test_nothing_is_read_again_while_nothing_changes(task_root: Path) -> None:
    before = take(task_root)
    assert take(task_root)["code"] is before["code"]
    (task_root / "handler.py").touch()
    assert take(task_root)["code"] is not before["code"]


def test_our_own_handler_depends_on_our_own_code(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("")
    code = fingerprint.take("quickthaw.handler.app.lambda_handler", str(tmp_path), {})["code"]
    assert {"handler/app.py", "layers/shard.py", "snapshot/gate.py"} <= set(code)
    assert "handler.py" not in code
