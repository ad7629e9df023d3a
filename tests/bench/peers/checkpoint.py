# SPDX-License-Identifier: Apache-2.0
"""Makes a bf16 Hugging Face directory of a GGUF file, from which transformers and torch start fastest."""

import sys
from pathlib import Path

import torch
import transformers

gguf, out = Path(sys.argv[1]), sys.argv[2]
model = transformers.AutoModelForCausalLM.from_pretrained(
    gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16
)
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)
model.save_pretrained(out)
