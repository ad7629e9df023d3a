# SPDX-License-Identifier: Apache-2.0
"""Fixtures for every test: an environment that is put back, the real model, split once, AWS's emulator."""

import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quickthaw.layers.checkpoints.split import split
from tests.contract.emulator import find_emulator
from tests.seaweed import Seaweed, serving

_CACHE = Path(__file__).parent / ".cache"


def pytest_sessionstart() -> None:
    """What a shell starts in the background ignores Ctrl-C; the commands that tests interrupt must not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, where everything is installed, a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Puts the environment back, and hides QUICKTHAW_* variables of the person who runs the tests."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("QUICKTHAW_")]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


def _smollm2(dtype: str) -> Path:
    """SmolLM2-135M-Instruct, from PyPI; a split that is there already is whole and is used again."""
    _CACHE.mkdir(exist_ok=True)
    return split("smollm2", _CACHE / f"smollm2-{dtype}", dtype=dtype).out


@pytest.fixture(scope="session")
def smollm2_shards() -> Path:
    """The real model in f32, in which its tokens equal the reference's."""
    return _smollm2("f32")


@pytest.fixture(scope="session")
def smollm2_bf16_shards() -> Path:
    """The real model in bf16, the default."""
    return _smollm2("bf16")


@pytest.fixture(scope="session")
def smollm2_int8_shards() -> Path:
    """The real model in int8."""
    return _smollm2("int8")


@pytest.fixture(scope="session")
def smollm2_int4_shards() -> Path:
    """The real model in int4, as which its layers were published."""
    return _smollm2("int4")


@pytest.fixture(scope="session")
def emulator_path() -> Path:
    """AWS's Runtime Interface Emulator."""
    path = find_emulator()
    if path is None:
        pytest.skip(f"AWS builds no Runtime Interface Emulator for {sys.platform} on {platform.machine()}")
    return path


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """An S3 server that is no stub."""
    with serving(tmp_path_factory.mktemp("seaweed")) as server:
        yield server
