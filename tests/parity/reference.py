# SPDX-License-Identifier: Apache-2.0
"""What transformers answers in f32.

`python -m tests.parity.reference` writes the answers down as the golden file, for tests without torch.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers

from quickthaw.layers.config import LayersConfig
from quickthaw.layers.smollm2 import locate
from tests import greedy
from tests.greedy import Case, Continuation


def of_case(source: Path, case: Case) -> Continuation:
    """The continuation of a tiny checkpoint."""
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    return _continue(model, greedy.prompt(case))


def of_smollm2() -> Continuation:
    """The continuation of the real model, by transformers' own reading of the GGUF."""
    gguf = locate(LayersConfig.from_env().cache)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    return _continue(model, greedy.SMOLLM2_PROMPT)


def _continue(model: torch.nn.Module, prompt_ids: Sequence[int]) -> Continuation:
    step, past, found = torch.tensor([list(prompt_ids)]), None, []
    with torch.no_grad():
        for _ in range(greedy.N_TOKENS):
            result = model(step, past_key_values=past, use_cache=True)
            past, logits = result.past_key_values, result.logits[0, -1]
            found.append(logits.numpy())
            step = logits.argmax().reshape(1, 1)
    return greedy.summary(np.stack(found))


def _main() -> None:
    references = {greedy.SMOLLM2: of_smollm2()}
    with tempfile.TemporaryDirectory() as directory:
        for case in greedy.CASES:
            source = greedy.checkpoint(Path(directory, case.name), case)
            references[case.name] = of_case(source, case)
    greedy.write_golden(references)


if __name__ == "__main__":
    _main()
