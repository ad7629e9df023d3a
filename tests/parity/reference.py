# SPDX-License-Identifier: Apache-2.0
"""What transformers answers in f32.

`python -m tests.parity.reference` writes the answers down as the golden file, for tests without torch.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from quickthaw.layers.checkpoints.smollm2 import locate
from quickthaw.layers.config import LayersConfig
from tests import greedy
from tests.greedy import Case, Continuation


def of_case(source: Path, case: Case) -> Continuation:
    """The continuation of a tiny checkpoint."""
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    return _continue(model, greedy.prompt(case))


def of_smollm2() -> Continuation:
    """The continuation of the real model, by transformers' own reading of the GGUF."""
    gguf = locate(Path(LayersConfig.from_env().cache))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    return _continue(model, greedy.SMOLLM2_PROMPT)


def _continue(model: transformers.PreTrainedModel, prompt_ids: Sequence[int]) -> Continuation:
    prompt = torch.tensor([list(prompt_ids)])
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=greedy.N_TOKENS,
        do_sample=False,
        eos_token_id=-1,  # never: the comparison goes on beyond the end of an answer
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return greedy.summary(torch.cat(result.logits).numpy())


def _main() -> None:
    references = {greedy.SMOLLM2: of_smollm2()}
    with tempfile.TemporaryDirectory() as directory:
        for case in greedy.CASES:
            source = greedy.checkpoint(Path(directory, case.name), case)
            references[case.name] = of_case(source, case)
    greedy.write_golden(references)


if __name__ == "__main__":
    _main()
