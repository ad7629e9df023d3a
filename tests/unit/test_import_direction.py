# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, and the environment is read in one place for each package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAY_IMPORT = {"handler": {"handler", "layers", "snapshot"}, "layers": {"layers"}, "snapshot": {"snapshot"}}
# The rooms of layers: splitting knows about text, and the modules at the top know of storage alone.
ROOM_MAY_IMPORT = {
    "": {"", "storage"},
    "storage": {"", "storage"},
    "compiled": {"", "compiled"},
    "text": {"", "text"},
    "checkpoints": {"", "storage", "text", "checkpoints"},
}
# The bootstrap sets what must be set before a handler is imported; the command passes its own on.
MAY_READ_ENVIRON = {"snapshot/bootstrap.py", "handler/cli.py"}
SOURCES = sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they lead"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reads_environ(tree: ast.AST) -> bool:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(names & attributes) or any(name.split(".")[-1] in names for name in _imported(tree))


def test_there_is_something_to_look_at() -> None:
    assert {_name(path).split("/")[0] for path in SOURCES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_imports_point_one_way(path: Path) -> None:
    package = _name(path).split("/")[0]
    imported = {
        name.split(".")[1] for name in _imported(ast.parse(path.read_text())) if name.startswith("quickthaw.")
    }
    assert imported <= MAY_IMPORT[package]


def _room(module: str) -> str:
    room = module.removeprefix("quickthaw.layers").removeprefix(".").partition(".")[0]
    return room if room in ROOM_MAY_IMPORT else ""


@pytest.mark.parametrize("path", sorted((ROOT / "layers").rglob("*.py")), ids=_name)
def test_the_rooms_of_layers_are_entered_one_way(path: Path) -> None:
    inside = _room("quickthaw." + _name(path).replace("/", "."))
    imported = {
        _room(name) for name in _imported(ast.parse(path.read_text())) if name.startswith("quickthaw.layers.")
    }
    assert imported <= ROOM_MAY_IMPORT[inside]


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_the_environment_is_read_in_config_only(path: Path) -> None:
    if path.name != "config.py" and _name(path) not in MAY_READ_ENVIRON:
        assert not _reads_environ(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_package_imports_nothing_by_itself(path: Path) -> None:
    if path.name == "__init__.py":
        assert not list(_imported(ast.parse(path.read_text())))


def test_the_checks_can_fail() -> None:
    assert _reads_environ(ast.parse("import os\nos.environ['A']"))
    assert _reads_environ(ast.parse("from os import getenv"))
    assert list(_imported(ast.parse("from quickthaw.handler import app"))) == ["quickthaw.handler.app"]
