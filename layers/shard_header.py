# SPDX-License-Identifier: Apache-2.0
"""What a shard's file says of itself, compared with what the manifest says of it.

The file is a safetensors file, which `checkpoints/shard_file.py` draws.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from quickthaw.layers.content import Content
from quickthaw.layers.errors import ShardReplacedError
from quickthaw.layers.shard_entry import ShardEntry


def check_header(content: Content, entry: ShardEntry) -> None:
    """Does the file say of itself what the manifest says of it? Tells swapped files apart even unverified."""
    try:
        header_bytes = int.from_bytes(content.buffer[:8], "little")
        header = json.loads(bytes(content.buffer[8 : 8 + header_bytes]))
        found = header.pop("__metadata__")["shard"], _tensor_table(header, 8 + header_bytes)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ShardReplacedError(
            "a shard's header is not one that `quickthaw shard` wrote", where=content.path, found=repr(exc)
        ) from exc
    expected = entry.file, {name: tuple(tensor) for name, tensor in entry.tensors.items()}
    if found != expected:
        raise ShardReplacedError(
            "a shard's header does not agree with the manifest",
            where=content.path,
            expected=f"{entry.file} with {', '.join(entry.tensors)}",
            found=f"{found[0]} with {', '.join(found[1])}",
            advice="copy the whole shard set again; a file of another one may have taken its place",
        )


def _tensor_table(header: Mapping[str, Any], data_start_bytes: int) -> dict[str, tuple[Any, ...]]:
    return {
        name: (tensor["dtype"], tuple(tensor["shape"]), data_start_bytes + tensor["data_offsets"][0])
        for name, tensor in header.items()
        if not name.startswith("_pad.")
    }
