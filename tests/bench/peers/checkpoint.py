# SPDX-License-Identifier: Apache-2.0
"""Makes a bf16 Hugging Face directory of a GGUF file, from which transformers and torch start fastest."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

gguf, out = Path(sys.argv[1]), sys.argv[2]
quantized = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
config = quantized.config.to_dict()
del config["quantization_config"]  # a model that still has it cannot be saved
model = LlamaForCausalLM(LlamaConfig(**config)).to(torch.bfloat16)
model.load_state_dict(quantized.state_dict())
AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)
model.save_pretrained(out)
