# SPDX-License-Identifier: Apache-2.0
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

path, prompt = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(path)
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
out = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=1, do_sample=False)
print(tokenizer.decode(out[0, -1]), flush=True)
