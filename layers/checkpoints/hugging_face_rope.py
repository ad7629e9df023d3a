# SPDX-License-Identifier: Apache-2.0
"""config.json → Rope: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quickthaw.layers.architecture import Rope
from quickthaw.layers.errors import UnsupportedModelError

ROPE_KEYS = frozenset(
    (
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "partial_rotary_factor",
        "original_max_position_embeddings",
    )
)
_DEFAULT_THETA = 10_000.0
_COMMON_KEYS = frozenset(("rope_type", "type", "rope_theta", "partial_rotary_factor"))
# The keys that each kind must have; `original_max_position_embeddings` alone may be absent.
_KIND_KEYS: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset(("factor",)),
    "dynamic": frozenset(("factor",)),
    "llama3": frozenset(
        ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    ),
}


def read_rope(config: Mapping[str, Any], max_positions: int) -> Rope:
    """The rotary embedding that a config.json describes, read as transformers reads it.

    Raises: UnsupportedModelError naming what is not computed.
    """
    parameters = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    theta = parameters.get("rope_theta", config.get("rope_theta", _DEFAULT_THETA))
    kind = str(parameters.get("rope_type", parameters.get("type", "default")))
    if kind not in _KIND_KEYS:
        raise _refuse("rope type", kind, f"one of {', '.join(_KIND_KEYS)}")
    rotary_share = parameters.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if rotary_share not in (None, 1.0):
        raise _refuse("partial_rotary_factor", rotary_share, "1.0")
    unknown = (
        {key for key, value in parameters.items() if value is not None} - _COMMON_KEYS - _KIND_KEYS[kind]
    )
    # Written by transformers 4 beside a kind that does not read it.
    unknown -= {"original_max_position_embeddings", "factor"} if kind == "default" else set()
    if unknown:
        raise _refuse(f"{kind} rope", ", ".join(sorted(unknown)), "no such keys")
    missing = {key for key in _KIND_KEYS[kind] if parameters.get(key) is None} - {
        "original_max_position_embeddings"
    }
    if missing:
        raise _refuse(f"{kind} rope", f"no {', '.join(sorted(missing))}", "these keys")
    return Rope(
        theta=float(theta),
        kind=kind,
        factor=float(parameters["factor"]) if kind != "default" else 1.0,
        low_freq_factor=float(parameters["low_freq_factor"]) if kind == "llama3" else 1.0,
        high_freq_factor=float(parameters["high_freq_factor"]) if kind == "llama3" else 1.0,
        original_positions=_original_positions(kind, parameters, config, max_positions),
    )


def _original_positions(
    kind: str, parameters: Mapping[str, Any], config: Mapping[str, Any], max_positions: int
) -> int:
    if kind == "dynamic":
        return max_positions
    if kind != "llama3":
        return 0
    # The outer key wins, as in transformers.
    for place in (config, parameters):
        if (positions := place.get("original_max_position_embeddings")) is not None:
            return int(positions)
    return max_positions


def _refuse(what: str, found: object, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"unsupported {what} in config.json", expected=expected, found=found)
