# SPDX-License-Identifier: Apache-2.0
"""config.json → Rope: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (4)."""

from __future__ import annotations

from collections.abc import Mapping

from quickthaw.layers.architecture import Rope
from quickthaw.layers.errors import UnsupportedModelError
from quickthaw.layers.record import Record

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


def read_rope(config: Record, max_positions: int) -> Rope:
    """The rotary embedding that a config.json describes, read as transformers reads it.

    Raises: UnsupportedModelError naming what is not computed, CheckpointError naming what is malformed.
    """
    filled = [key for key in ("rope_scaling", "rope_parameters") if config.get(key)]
    parameters = config.child(filled[0]) if filled else config.empty()
    kind = _kind(parameters)
    for place in (parameters, config):
        if "partial_rotary_factor" in place and place.number("partial_rotary_factor") != 1:
            raise _refuse("partial_rotary_factor", place.get("partial_rotary_factor"), "1.0")
    _check_keys(kind, parameters)
    return Rope(
        theta=_theta(parameters, config),
        kind=kind,
        factor=parameters.number("factor") if kind != "default" else 1.0,
        low_freq_factor=parameters.number("low_freq_factor") if kind == "llama3" else 1.0,
        high_freq_factor=parameters.number("high_freq_factor") if kind == "llama3" else 1.0,
        original_positions=_original_positions(kind, parameters, config, max_positions),
    )


def _kind(parameters: Record) -> str:
    key = "rope_type" if "rope_type" in parameters else "type"
    kind = parameters.text(key) if key in parameters else "default"
    if kind not in _KIND_KEYS:
        raise _refuse("rope type", kind, f"one of {', '.join(_KIND_KEYS)}")
    return kind


def _check_keys(kind: str, parameters: Record) -> None:
    found = {key for key in parameters if key in parameters}
    unknown = found - _COMMON_KEYS - _KIND_KEYS[kind]
    # Written by transformers 4 beside a kind that does not read it.
    unknown -= {"original_max_position_embeddings", "factor"} if kind == "default" else set()
    if unknown:
        raise _refuse(f"{kind} rope", ", ".join(sorted(unknown)), "no such keys")
    if missing := _KIND_KEYS[kind] - found - {"original_max_position_embeddings"}:
        raise _refuse(f"{kind} rope", f"no {', '.join(sorted(missing))}", "these keys")


def _theta(parameters: Record, config: Record) -> float:
    for place in (parameters, config):
        if "rope_theta" in place:
            return place.number("rope_theta")
    return _DEFAULT_THETA


def _original_positions(kind: str, parameters: Record, config: Record, max_positions: int) -> int:
    if kind == "dynamic":
        return max_positions
    if kind != "llama3":
        return 0
    # The outer key wins, as in transformers.
    for place in (config, parameters):
        if "original_max_position_embeddings" in place:
            return place.integer("original_max_position_embeddings")
    return max_positions


def _refuse(what: str, found: object, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"unsupported {what} in config.json", expected=expected, found=found)
