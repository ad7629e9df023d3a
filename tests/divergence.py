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

# "The capital of France is Paris. …", as SmolLM2 splits it, and on with its own greedy tokens.
TEXT = [504, 3575, 282, 4649, 314, 7042, 30, 657, 3575, 282, 4649, 314, 7042, 30, 198, 198, 504, 3575, 282]


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
