# SPDX-License-Identifier: Apache-2.0
"""What a capture depends on: when one part of it has changed, the capture is out of date.

    {"function":      {"handler": "package.module.function"},
     "interpreter":   {"version": "3.11.7 (main, …)", "executable": "/usr/bin/python3"},
     "packages":      {"numpy": "2.3.5", …},                     every distribution that can be imported
     "code":          {"handler.py": SHA-256, …},                Python and native modules under the task root
     "files":         {"/srv/shards/manifest.json": SHA-256, …}  that the configuration names
     "configuration": {"QUICKTHAW_MAX_TOKENS": "256", …}}        without secrets: those may be rotated

A part is a flat table, so that a fingerprint can be kept as JSON, and a difference be told by its name.

Every start waits for one. So what was read is kept, with the times and numbers of all files and folders that
it was read from: as long as those are what they were, nothing is listed or read again.
"""

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from quickthaw.snapshot.config import WARMUP_EVENT

Fingerprint = dict[str, dict[str, str]]
Identity = tuple[int, int, int, int] | None

_ABSENT = "absent"
_CODE_SUFFIXES = (".py", ".so")
_CONFIGURATION = ("QUICKTHAW_", "PYTHON", "OPENBLAS_", "OMP_", "MKL_", "LD_")  # beginnings of names
_SECRET = ("KEY", "SECRET", "PASSWORD", "CREDENTIAL")
_SHARDS = "QUICKTHAW_SHARDS"
_OUR_PACKAGE = "quickthaw."
_OUR_FOLDERS = ("handler", "layers", "snapshot")
_INFO_SUFFIXES = (".dist-info", ".egg-info")


def take(handler: str, task_root: str | None, environ: Mapping[str, str]) -> Fingerprint:
    """The fingerprint of a function that would be started now."""
    root = task_root or environ.get("LAMBDA_TASK_ROOT") or os.getcwd()
    return {
        "function": {"handler": handler},
        "interpreter": {"version": sys.version, "executable": sys.executable},
        **_on_disk(handler, root, _named_files(environ)),
        "configuration": _configuration(environ),
    }


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What has changed, in words; nothing where nothing has."""
    changes: list[str] = []
    for part in sorted(before.keys() | now.keys()):
        old, new = before.get(part, {}), now.get(part, {})
        names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        changes += [_in_words(part, name, old.get(name), new.get(name)) for name in names]
    return changes


def _in_words(part: str, name: str, old: str | None, new: str | None) -> str:
    if part in ("code", "files"):  # digests tell nobody anything
        is_new, is_gone = old in (None, _ABSENT), new in (None, _ABSENT)
        return f"{name} {'is new' if is_new else 'is gone' if is_gone else 'has changed'}"
    what = {"packages": name, "configuration": name}.get(part, f"the {part}'s {name}")
    if old is None:
        return f"{what} is new: {new}"
    if new is None:
        return f"{what} is gone; it was {old}"
    return f"{what} was {old}, is {new}"


# --- what is on disk ---


class _Reading(NamedTuple):
    """What was read, and who each file and folder was then."""

    parts: Fingerprint
    identities: dict[str, Identity]

    @property
    def is_current(self) -> bool:
        return all(_identity(path) == identity for path, identity in self.identities.items())


_last_reading: dict[tuple[str, ...], _Reading] = {}


def _on_disk(handler: str, task_root: str, files: tuple[str, ...]) -> Fingerprint:
    key = (handler, task_root, *files, *sys.path)
    reading = _last_reading.get(key)
    if reading is None or not reading.is_current:
        identities: dict[str, Identity] = {}
        parts = {
            "packages": _packages(identities),
            "code": _code(handler, task_root, identities),
            "files": {path: _digest(path, identities) for path in files},
        }
        reading = _last_reading[key] = _Reading(parts, identities)
    return reading.parts


def _packages(identities: dict[str, Identity]) -> dict[str, str]:
    packages: dict[str, str] = {}
    for folder in reversed(sys.path):  # so that the first one that is found counts
        identities[folder or "."] = _identity(folder or ".")
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith(_INFO_SUFFIXES) and not name.startswith("~"):  # as pip names what it takes apart
                package, _, version = os.path.splitext(name)[0].partition("-")
                packages[package] = version
    return packages


def _code(handler: str, task_root: str, identities: dict[str, Identity]) -> dict[str, str]:
    """Of our own handler our own code: it runs nothing of the task root."""
    if not handler.startswith(_OUR_PACKAGE):
        return _digests(task_root, identities)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours: dict[str, str] = {}
    for folder in _OUR_FOLDERS:
        ours |= _digests(os.path.join(root, folder), identities, f"{folder}/")
    return ours


def _digests(folder: str, identities: dict[str, Identity], prefix: str = "") -> dict[str, str]:
    """Of each module in a folder, by its path there."""
    identities[folder] = _identity(folder)  # before it is listed: what comes meanwhile changes it
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return {}
    digests: dict[str, str] = {}
    for entry in entries:
        name = entry.name
        if entry.is_dir():
            if not (name.startswith(".") or name == "__pycache__" or entry.is_symlink()):
                digests |= _digests(entry.path, identities, f"{prefix}{name}/")
        elif name.endswith(_CODE_SUFFIXES):
            digests[prefix + name] = _digest(entry.path, identities)
    return digests


def _digest(path: str, identities: dict[str, Identity]) -> str:
    identity = identities[path] = _identity(path)
    return _ABSENT if identity is None else _digest_of(path, identity)


@lru_cache(maxsize=65_536)
def _digest_of(path: str, identity: Identity) -> str:
    """Read once for as long as the file stays as it is."""
    del identity
    try:
        with open(path, "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return _ABSENT


def _identity(path: str) -> Identity:
    """What a change changes; None where there is nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


# --- what was said to it ---


def _named_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    paths = []
    if _SHARDS in environ:
        paths.append(os.path.join(environ[_SHARDS], "manifest.json"))
    if WARMUP_EVENT in environ:
        paths.append(environ[WARMUP_EVENT])
    return tuple(paths)


def _configuration(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_CONFIGURATION) and not any(word in name for word in _SECRET)
    }
