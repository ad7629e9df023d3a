# SPDX-License-Identifier: Apache-2.0
"""The zip function as `sam build` makes it, started as Lambda does: by the wrapper, from its folder alone."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quickthaw.snapshot.streaming import PRELUDE_END
from tests import shards
from tests.contract.emulator import Emulator, emulating

ROOT = Path(__file__).parents[2]
HANDLER = "quickthaw.handler.app.lambda_handler"
PROMPT: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
# What /var/runtime/bootstrap does where there is a wrapper.
LAUNCHER = """
import os
wrapper = os.environ["AWS_LAMBDA_EXEC_WRAPPER"]
os.execv(wrapper, [wrapper, os.environ["INTERPRETER"], "/var/runtime/bootstrap.py"])
"""


@pytest.fixture(scope="module")
def task_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The function's folder, with a tiny model in it."""
    if sys.platform != "linux":
        pytest.skip("Lambda's packages are for Linux alone")
    task_root = tmp_path_factory.mktemp("zip") / "task"
    variables = {
        "ARTIFACTS_DIR": task_root,
        "PYTHON": sys.executable,
        "LAMBDA_PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}",
        "LAMBDA_INTERPRETER": sys.executable,
        "LAMBDA_ARCH": platform.machine(),
        "SHARDS": shards.make(tmp_path_factory.mktemp("model")),
    }
    make = ["make", "--no-print-directory", "build-ZipFunction"]
    subprocess.run([*make, *(f"{name}={value}" for name, value in variables.items())], cwd=ROOT, check=True)
    return task_root


@pytest.fixture(scope="module")
def emulator(task_root: Path, emulator_path: Path) -> Iterator[Emulator]:
    beside = task_root.parent
    (beside / "launcher.py").write_text(LAUNCHER)
    runtime = beside / "runtime" / "awslambdaric"  # the runtime's own, which ours comes before
    runtime.mkdir(parents=True)
    (runtime / "__init__.py").write_text("raise ImportError('the awslambdaric of the runtime')")
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(runtime.parent),
        "PYTHONDONTWRITEBYTECODE": "1",  # as on a file system that is read-only
        "INTERPRETER": f"{sys.base_prefix}/bin/python3",  # with no environment of its own
        "AWS_LAMBDA_EXEC_WRAPPER": str(task_root / "quickthaw" / "snapshot" / "exec_wrapper.sh"),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "60",
        "LAMBDA_TASK_ROOT": str(task_root),
        "_HANDLER": HANDLER,
        "QUICKTHAW_SHARDS": str(task_root / "shards"),
        "QUICKTHAW_CACHE": str(beside / "cache"),
        "QUICKTHAW_STREAM": "always",
    }
    with emulating(emulator_path, beside, HANDLER, environ, "launcher") as emulator:
        yield emulator


def test_it_fits(task_root: Path) -> None:
    without_shards = [
        path for path in task_root.rglob("*") if "shards" not in path.parts[len(task_root.parts) :]
    ]
    assert sum(path.stat().st_size for path in without_shards if path.is_file()) < 100_000_000  # of 250


def test_it_is_compiled(task_root: Path) -> None:
    sources = list((task_root / "quickthaw").rglob("*.py"))
    assert sources
    tag = sys.implementation.cache_tag
    assert [
        path for path in sources if not (path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc").exists()
    ] == []


def test_it_answers(emulator: Emulator) -> None:
    answer = emulator.ask_json(PROMPT)
    assert (len(answer["token_ids"]), answer["finish_reason"]) == (4, "length")


def test_it_streams(emulator: Emulator) -> None:
    http = {"http": {"method": "POST", "path": "/v1/completions"}}
    event = {
        "version": "2.0",
        "rawPath": "/v1/completions",
        "requestContext": http,
        "body": json.dumps(PROMPT),
    }
    _, answer = emulator.ask(event)
    prelude, _, body = answer.partition(PRELUDE_END)
    assert json.loads(prelude)["statusCode"] == 200
    assert json.loads(body)["usage"]["completion_tokens"] == 4


def test_it_is_warmed(emulator: Emulator) -> None:
    found = emulator.ask_json({"quickthaw": "warm"})
    assert (found["quickthaw"], found["engine"]) == ("warm", "interpreter")
    assert found["resident_bytes"] == found["mapped_bytes"] > 0
