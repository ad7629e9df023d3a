# SPDX-License-Identifier: Apache-2.0
"""The environment variables of this package, declared once; the README's table comes from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from quickthaw.layers.errors import LayersConfigError


class Variable(NamedTuple):
    """One environment variable: where it lands, what it means, and how its text is read."""

    field: str
    name: str
    unit: str
    default: str
    allowed: str
    help: str
    parse: Callable[[str], Any]  # raises ValueError on text outside `allowed`


def read_variables(
    variables: Sequence[Variable], environ: Mapping[str, str], error: type[Exception]
) -> dict[str, Any]:
    """Field → value for every variable, from `environ` or its default.

    Raises: `error`, naming the variable, its value and what is allowed.
    """
    values: dict[str, Any] = {}
    for variable in variables:
        text = environ.get(variable.name, variable.default)
        try:
            values[variable.field] = variable.parse(text)
        except ValueError as exc:
            raise error(f"bad value of {variable.name}: {text!r}: allowed are {variable.allowed}") from exc
    return values


class Verify(Enum):
    """When a shard's bytes are compared with the digest in the manifest (its size and identity always are).

    FIRST: once per file; a stamp in the cache directory remembers it until the file changes.
    ALWAYS: each time the file is mapped.
    NEVER: not at all.
    """

    FIRST = "first"
    ALWAYS = "always"
    NEVER = "never"


def _path(text: str) -> str:  # not a Path: pathlib costs 5 ms of a start
    if not text or "\0" in text:
        raise ValueError(text)
    return text


def _location(text: str) -> str:
    """A path, or s3://bucket/prefix."""
    scheme, separator, rest = text.partition("://")
    if separator and (scheme != "s3" or not rest.partition("/")[0]):
        raise ValueError(text)
    return _path(text)


def _cache_path(text: str) -> str | None:
    return _path(text) if text else None


def _number_or_auto(text: str, lowest: int, highest: int) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise ValueError(text)
    return int(text)


def _threads(text: str) -> int | None:
    return _number_or_auto(text, 1, 1024)


def _cache_mib(text: str) -> int | None:
    return _number_or_auto(text, 0, 1 << 30)


def _memory_mib(text: str) -> int | None:
    return _number_or_auto(text, 1, 1 << 30)


def _preload(text: str) -> int:
    """Percent of the shards' bytes."""
    if text in ("none", "init"):
        return 100 if text == "init" else 0
    percent = text.removeprefix("first:").removesuffix("%")
    if f"first:{percent}%" != text or not percent:
        raise ValueError(text)
    found = _number_or_auto(percent, 1, 100)
    if found is None:
        raise ValueError(text)
    return found


def _copies(text: str) -> bool:
    if text not in ("auto", "copy"):
        raise ValueError(text)
    return text == "copy"


VARIABLES = (
    Variable(
        "shards",
        "QUICKTHAW_SHARDS",
        "path or URL",
        "shards",
        "a directory, or s3://bucket/prefix",
        "The shard set to serve.",
        _location,
    ),
    Variable(
        "verify",
        "QUICKTHAW_VERIFY",
        "",
        "first",
        "first, always, never",
        "When shards are checked against their SHA-256.",
        Verify,
    ),
    Variable(
        "cache",
        "QUICKTHAW_CACHE",
        "path",
        "",
        "a directory that may be written",
        "Where verification stamps and downloads are kept; by default quickthaw-UID under TMPDIR or /tmp.",
        _cache_path,
    ),
    Variable(
        "cache_mib",
        "QUICKTHAW_CACHE_MIB",
        "MiB",
        "auto",
        "auto, or 0 or more",
        "Room for shards from S3, the oldest out; auto: the disk's, but for 64. Others are kept in memory.",
        _cache_mib,
    ),
    Variable(
        "copies",
        "QUICKTHAW_MAP",
        "",
        "auto",
        "auto, copy",
        "copy: shards in a directory are read into memory, not mapped, for files that others may write to.",
        _copies,
    ),
    Variable(
        "memory_mib",
        "QUICKTHAW_MEMORY_MIB",
        "MiB",
        "auto",
        "auto, or 1 or more",
        "Memory to stay within, mapped shards included; auto: Lambda's, the cgroup's, or the machine's.",
        _memory_mib,
    ),
    Variable(
        "preload_percent",
        "QUICKTHAW_PRELOAD",
        "",
        "none",
        "none, init, first:N%",
        "What is read before the function is ready: nothing, all shards, or the first N percent of them.",
        _preload,
    ),
    Variable(
        "n_threads",
        "QUICKTHAW_THREADS",
        "threads",
        "auto",
        "auto, or 1 to 1024",
        "Threads that compute; auto follows the CPU quota.",
        _threads,
    ),
)


def default_cache(environ: Mapping[str, str]) -> str:
    """The cache directory when none is configured; tempfile would cost more imports than it is worth here."""
    return os.path.join(environ.get("TMPDIR") or "/tmp", f"quickthaw-{os.getuid()}")


def lambda_memory_mib(environ: Mapping[str, str]) -> int | None:
    """What Lambda gives the function, files that are cached included; None elsewhere."""
    text = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    return int(text) if text.isascii() and text.isdigit() else None


class LayersConfig(NamedTuple):
    """What the environment says about weights and the engine that computes with them."""

    shards: str
    verify: Verify
    cache: str
    cache_mib: int | None  # None: what the disk has
    copies: bool
    memory_mib: int | None  # None: what the cgroup or the machine gives
    preload_percent: int
    n_threads: int | None  # None: follow the CPU quota

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> LayersConfig:
        """Raises: LayersConfigError naming variable, value and what is allowed."""
        environ = os.environ if environ is None else environ
        values = read_variables(VARIABLES, environ, LayersConfigError)
        values["cache"] = values["cache"] or default_cache(environ)
        values["memory_mib"] = values["memory_mib"] or lambda_memory_mib(environ)
        return cls(**values)
