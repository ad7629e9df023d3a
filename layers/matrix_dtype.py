# SPDX-License-Identifier: Apache-2.0
"""How a matrix of each dtype is stored: as tensors of its shard, in rows, as no one processor wants it.

    dtype      tensors                                  a weight is
    f32        NAME          (n_out, n_in)      F32     itself
    bf16       NAME          (n_out, n_in)      BF16    itself
    int8       NAME          (n_out, n_in)      I8      q · scale[row]
               NAME.scale    (n_out,)           F32     each of them a bf16, so that no kernel rounds it
    int4       NAME          (n_out, n_in / 2)  U8      q · scale[row, group] + minimum[row, group]
               NAME.scale    (n_out, n_in / 32) F16
               NAME.minimum  (n_out, n_in / 32) F16

    a byte of int4:  | q of column 2i + 1 | q of column 2i |      q: 0 to 15; a group: 32 columns
                       bits 7..4            bits 3..0

int4-128 has groups of 128 columns. Both keep the embedding shard's matrices in int8. What was Q4_0 or Q4_1 in
a GGUF file, whose groups are 32 columns as well, loses nothing in int4.
"""

from __future__ import annotations

DTYPES = ("f32", "bf16", "int8", "int4", "int4-128")
GROUP_COLUMNS = {"int4": 32, "int4-128": 128}
SCALE, MINIMUM = ".scale", ".minimum"
ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1}
_PLAIN = {"f32": "F32", "bf16": "BF16"}

Described = tuple[str, tuple[int, ...]]  # a tensor's dtype and shape, as safetensors names them


def is_quantised(dtype: str) -> bool:
    """Whether a weight is stored as less than a number of its own."""
    return dtype not in _PLAIN


def embedding_dtype(dtype: str) -> str:
    """Of the embedding shard's matrices, in a set of that dtype: four bits would show in every logit."""
    return "int8" if dtype in GROUP_COLUMNS else dtype


def stored_tensors(name: str, shape: tuple[int, ...], dtype: str) -> dict[str, Described]:
    """Name → dtype and shape of the tensors that hold one of a model's; a vector is F32 always."""
    if len(shape) == 1:
        return {name: ("F32", shape)}
    if not is_quantised(dtype):
        return {name: (_PLAIN[dtype], shape)}
    n_rows, n_columns = shape
    if dtype == "int8":
        return {name: ("I8", shape), name + SCALE: ("F32", (n_rows,))}
    groups = ("F16", (n_rows, n_columns // GROUP_COLUMNS[dtype]))
    return {name: ("U8", (n_rows, n_columns // 2)), name + SCALE: groups, name + MINIMUM: groups}


def size_bytes(described: Described) -> int:
    """What a tensor takes in a file."""
    n_bytes = ITEM_BYTES[described[0]]
    for n_items in described[1]:
        n_bytes *= n_items
    return n_bytes
