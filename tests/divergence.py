# SPDX-License-Identifier: Apache-2.0
"""How far what one engine says of a text is from what another does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quickthaw.layers.config import LayersConfig
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests.greedy import Engine

# "Water covers most of the Earth's surface, but only a small part of it is fresh. Rain falls on hills and
# fields, runs into streams, and the streams join to form rivers that carry it down to the sea. On the way
# some of it sinks into the ground, where it may stay for thousands of years.", as SmolLM2 splits it.
TEXT = [
    *(12615, 7725, 768, 282, 260, 2591, 506, 2376, 28, 564, 805, 253, 1165, 599, 282, 357, 314, 3961, 30),
    *(15143, 8227, 335, 12610, 284, 3705, 28, 7313, 618, 10233, 28, 284, 260, 10233, 5757, 288, 910, 7626),
    *(338, 3631, 357, 1187, 288, 260, 3426, 30, 1985, 260, 970, 634, 282, 357, 29028, 618, 260, 2118, 28),
    *(837, 357, 654, 2951, 327, 4327, 282, 929, 30),
]


class Divergence(NamedTuple):
    """Mean over a text's positions of KL(reference, found), and how often both would say the same next."""

    kl: float
    agreement: float


def log_probabilities(
    shard_set: Path, make: Callable[[ShardSet, int], Engine] = Interpreter
) -> npt.NDArray[np.float64]:
    """After each token of the text. Shapes: (n_tokens, vocab)."""
    shards = ShardSet.open(shard_set, LayersConfig.from_env({}))
    engine, cache = make(shards, 2), KeyValueCache(shards.manifest.model)
    logits = np.stack([engine.forward([token_id], cache) for token_id in TEXT]).astype(np.float64)
    engine.release()
    logits -= logits.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return found


def divergence(reference: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> Divergence:
    """Of two answers of `log_probabilities`."""
    kl = (np.exp(reference) * (reference - found)).sum(axis=-1).mean()
    return Divergence(float(kl), float((reference.argmax(axis=-1) == found.argmax(axis=-1)).mean()))
