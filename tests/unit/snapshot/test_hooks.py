# SPDX-License-Identifier: Apache-2.0
"""What is made anew after a restore; tests/contract/test_engines.py sees to it in real clones."""

import os
import random
import ssl
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import snapshot_restore_py

from quickthaw.snapshot import hooks


@pytest.fixture(autouse=True)
def _uuid_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_node", "_last_timestamp", "_generate_time_safe"):
        monkeypatch.setattr(uuid, name, getattr(uuid, name))


@pytest.fixture(autouse=True)
def _generators_as_they_were() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


def drawn() -> list[object]:
    """What a process that is cloned here would draw."""
    random.seed(1)
    np.random.seed(1)
    hooks.renew()
    return [random.random(), np.random.random(), uuid.getnode(), uuid.uuid1().clock_seq]


def test_two_clones_draw_different_numbers() -> None:
    for mine, other in zip(drawn()[:3], drawn()[:3], strict=True):
        assert mine != other
    assert len({drawn()[3] for _ in range(20)}) > 1  # of 14 bits


def test_names_of_temporary_files_begin_anew() -> None:
    tempfile.mktemp()
    before = tempfile._name_sequence  # type: ignore[attr-defined]
    hooks.renew()
    tempfile.mktemp()
    assert tempfile._name_sequence is not before  # type: ignore[attr-defined]


def test_the_default_session_of_boto3_and_torchs_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3, torch = SimpleNamespace(DEFAULT_SESSION="captured"), SimpleNamespace(n=0)
    torch.seed = lambda: setattr(torch, "n", torch.n + 1)
    monkeypatch.setitem(sys.modules, "boto3", boto3)
    monkeypatch.setitem(sys.modules, "torch", torch)
    hooks.renew()
    assert boto3.DEFAULT_SESSION is None
    assert torch.n == 1


def test_the_time_zone_is_read_again() -> None:
    os.environ["TZ"] = "UTC-5"
    hooks.renew()
    try:
        assert time.localtime().tm_gmtoff == 5 * 3600
    finally:
        del os.environ["TZ"]
        time.tzset()


def test_openssl_gets_fresh_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    stirred: list[bytes] = []
    monkeypatch.setattr(ssl, "RAND_add", lambda data, _entropy: stirred.append(data))
    hooks.renew()
    hooks.renew()
    assert len(set(stirred)) == 2


def test_what_is_not_imported_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boto3", "torch", "ssl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    hooks.renew()
    assert not {"boto3", "torch", "ssl"} & sys.modules.keys()


def test_the_decorators_are_awss() -> None:
    assert hooks.register_after_restore is snapshot_restore_py.register_after_restore
    assert hooks.register_before_snapshot is snapshot_restore_py.register_before_snapshot
    assert (hooks.renew, (), {}) in snapshot_restore_py.get_after_restore()
