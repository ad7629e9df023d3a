# SPDX-License-Identifier: Apache-2.0
"""The shortest torch that computes Llama's first token: no tokenizer, no cache, bf16 safetensors."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file

w = load_file(Path(sys.argv[1], "model.safetensors"))
ids = torch.tensor([504, 3575, 282, 4649, 314])
n_layers, n_heads, n_kv_heads, d, theta, eps = 30, 9, 3, 64, 100000.0, 1e-5
angle = torch.arange(len(ids))[:, None] * theta ** (-torch.arange(0, d, 2) / d)
cos, sin = angle.cos().repeat(1, 2).bfloat16(), angle.sin().repeat(1, 2).bfloat16()


def rotate(x: torch.Tensor) -> torch.Tensor:
    return x * cos + torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1) * sin


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(len(ids), -1, d).transpose(0, 1)


with torch.no_grad():
    x = w["model.embed_tokens.weight"][ids]
    for i in range(n_layers):
        layer = {
            k.removeprefix(f"model.layers.{i}."): v
            for k, v in w.items()
            if k.startswith(f"model.layers.{i}.")
        }
        n = F.rms_norm(x, x.shape[-1:], layer["input_layernorm.weight"], eps)
        q, k, v = (heads(F.linear(n, layer[f"self_attn.{p}_proj.weight"])) for p in "qkv")
        k, v = (t.repeat_interleave(n_heads // n_kv_heads, 0) for t in (rotate(k), v))
        a = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + F.linear(a.transpose(0, 1).flatten(1), layer["self_attn.o_proj.weight"])
        n = F.rms_norm(x, x.shape[-1:], layer["post_attention_layernorm.weight"], eps)
        gated = F.silu(F.linear(n, layer["mlp.gate_proj.weight"])) * F.linear(n, layer["mlp.up_proj.weight"])
        x = x + F.linear(gated, layer["mlp.down_proj.weight"])
    x = F.rms_norm(x[-1], x.shape[-1:], w["model.norm.weight"], eps)
    print(int(F.linear(x, w["model.embed_tokens.weight"]).argmax()), flush=True)
