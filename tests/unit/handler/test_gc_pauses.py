# SPDX-License-Identifier: Apache-2.0
import gc
from collections.abc import Iterator

import pytest

from quickthaw.handler import gc_pauses


@pytest.fixture(autouse=True)
def _callbacks() -> Iterator[None]:
    before = list(gc.callbacks)
    gc_pauses.take()
    yield
    gc.callbacks[:] = before


def test_each_collection_is_a_pause() -> None:
    gc_pauses.watch()
    gc_pauses.take()
    gc.collect()
    gc.collect()
    pauses_ns = gc_pauses.take()
    assert len(pauses_ns) >= 2
    assert all(0 < pause_ns < 10**11 for pause_ns in pauses_ns)


def test_it_watches_once() -> None:
    gc_pauses.watch()
    n_callbacks = len(gc.callbacks)
    gc_pauses.watch()
    assert len(gc.callbacks) == n_callbacks
