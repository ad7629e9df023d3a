# SPDX-License-Identifier: Apache-2.0
"""Greedy continuations, ours and recorded ones, and the rule by which two of them are the same."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests import models

N_TOKENS = 64
GOLDEN = Path(__file__).parent / "golden" / "greedy.json"
SMOLLM2 = "smollm2"
SMOLLM2_PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"

# Two engines may round a tie either way, and then go on differently. Logits, and the gap of the best two.
TIE_GAP = 1e-4
RELATIVE_ERROR = 1e-4


class Continuation(NamedTuple):
    """The logits after the prompt, the greedy tokens, and the lead each had over the second best."""

    logits: list[float]  # of the first 256 tokens of the vocabulary
    token_ids: list[int]
    gaps: list[float]


class Case(NamedTuple):
    """A tiny checkpoint, how its weights are stored, and the length of the prompt."""

    model: str
    dtype: str
    n_prompt: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.dtype}, {self.n_prompt} tokens"


# A short prompt whose continuation crosses every window and trained length, and one that goes in by chunks.
CASES = [
    *(Case(model, dtype, 20) for model in models.CONFIGS for dtype in ("f32", "bf16")),
    *(Case(model, "f32", 150) for model in models.CONFIGS),
]


def prompt(case: Case) -> list[int]:
    """Random token ids, the same ones every time."""
    return [int(token) for token in np.random.default_rng(case.n_prompt).integers(0, 199, case.n_prompt)]


def checkpoint(directory: Path, case: Case) -> Path:
    """The case's Hugging Face directory, stored in its shards' dtype, so that splitting rounds nothing."""
    config = models.config(case.model)
    return models.write_checkpoint(directory, config, models.tensors(config), dtype=case.dtype.upper())


def interpret(source: Path, out: Path, case: Case) -> Continuation:
    """Splits the case's checkpoint and continues its prompt with the interpreter."""
    return continuation(split(str(source), out, dtype=case.dtype).out, prompt(case))


class Engine(Protocol):
    """What continues a prompt."""

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> npt.NDArray[np.float32]: ...

    def release(self) -> None: ...


def continuation(
    shard_set: Path, prompt_ids: Sequence[int], make: Callable[[ShardSet, int], Engine] = Interpreter
) -> Continuation:
    """Continues the prompt, with the interpreter unless told."""
    shards = ShardSet.open(shard_set, LayersConfig.from_env({}))
    engine, cache = make(shards, 2), KeyValueCache(shards.manifest.model)
    found = []
    logits = engine.forward(prompt_ids, cache)
    for _ in range(N_TOKENS):
        found.append(logits)
        logits = engine.forward([int(logits.argmax())], cache)
    engine.release()
    return summary(np.stack(found))


def summary(logits: npt.NDArray[np.float32]) -> Continuation:
    """Shapes: logits (N_TOKENS, vocab)."""
    best = np.sort(logits, axis=-1)[:, -2:]
    gaps = best[:, 1] - best[:, 0]
    return Continuation(logits[0, :256].tolist(), logits.argmax(axis=-1).tolist(), gaps.tolist())


def assert_same(found: Continuation, reference: Continuation) -> None:
    """The logits within RELATIVE_ERROR, and the same tokens, unless the reference itself hardly decided."""
    scale = np.abs(reference.logits).max()
    np.testing.assert_allclose(found.logits, reference.logits, rtol=0, atol=RELATIVE_ERROR * scale)
    for step, (ours, theirs) in enumerate(zip(found.token_ids, reference.token_ids, strict=True)):
        if ours != theirs:
            assert reference.gaps[step] < TIE_GAP, f"token {step} is {ours}, not {theirs}"
            return


def read_golden() -> dict[str, Continuation]:
    """Name → what transformers answered when the file was made."""
    return {name: Continuation(**record) for name, record in json.loads(GOLDEN.read_text()).items()}


def write_golden(references: dict[str, Continuation]) -> None:
    """One line for each name, rounded to what f32 holds."""
    lines = [
        json.dumps(name)
        + ": "
        + json.dumps(
            {
                "logits": [float(f"{value:.7g}") for value in reference.logits],
                "token_ids": reference.token_ids,
                "gaps": [float(f"{gap:.3g}") for gap in reference.gaps],
            }
        )
        for name, reference in references.items()
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
