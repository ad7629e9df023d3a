# SPDX-License-Identifier: Apache-2.0
"""Turns a chat template's syntax tree into the JSON program that `chat_program.py` runs.

Needs jinja2, so it runs when a model is split. An expression or statement outside the subset becomes
`["decline"]` where it stands: a branch for tools that no request takes costs nothing, and one that is taken
hands the whole rendering to jinja2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes

from quickthaw.layers.text.chat_program import FILTERS, METHODS, TESTS, Node

_DECLINE: Node = ["decline"]
_LOOP_FIELDS = {
    "first",
    "last",
    "index",
    "index0",
    "revindex",
    "revindex0",
    "length",
    "previtem",
    "nextitem",
}
# Names that jinja2 and the reference put in reach of every template.
_GLOBALS = {
    "self",
    "range",
    "dict",
    "lipsum",
    "cycler",
    "joiner",
    "namespace",
    "raise_exception",
    "strftime_now",
}


class Compiler:
    """One template on its way to a program."""

    def __init__(self, template: nodes.Template) -> None:
        self._template = template
        self._assigned = {name.name for name in template.find_all(nodes.Name) if name.ctx != "load"}
        self._namespaces = _namespaces(template)
        self._n_loops = 0

    def program(self) -> list[Node] | None:
        """The whole template, or None where it would always decline."""
        # A name that means a builtin in one place and something else in another is left to jinja2.
        if self._assigned & (_GLOBALS | {"loop"}):
            return None
        program = self._block(self._template.body)
        return None if _DECLINE in program or ["print", _DECLINE] in program else program

    def _block(self, body: list[nodes.Node]) -> list[Node]:
        return [statement for node in body for statement in self._statements(node)]

    # --- statements ---

    def _statements(self, node: nodes.Node) -> list[Node]:
        match node:
            case nodes.Output():
                return [self._output(part) for part in node.nodes]
            case nodes.If():
                branches = [node, *node.elif_]
                return [
                    [
                        "if",
                        [[self._of(b.test), self._block(b.body)] for b in branches],
                        self._block(node.else_),
                    ]
                ]
            case nodes.For(target=nodes.Name(name=name), test=None, recursive=False, else_=[]):
                return [["for", name, self._of(node.iter), self._loop_body(node.body)]]
            case nodes.Assign(target=nodes.Name(name=name)):
                return [["set", name, self._of(node.node, is_assigned=True)]]
            case nodes.Assign(target=nodes.NSRef(name=name, attr=field)):
                return [["set_field", name, field, self._of(node.node)]]
            case _:
                return [_DECLINE]

    def _output(self, node: nodes.Expr) -> Node:
        if isinstance(node, nodes.TemplateData):
            return ["text", node.data]
        return ["print", self._of(node)]

    def _loop_body(self, body: list[nodes.Node]) -> list[Node]:
        self._n_loops += 1
        program = self._block(body)
        self._n_loops -= 1
        return program

    # --- expressions ---

    def _of(self, node: nodes.Node | None, *, is_assigned: bool = False) -> Node:
        if node is None:
            return ["undefined"]
        if isinstance(node, nodes.Call) and _is_global(node.node, "namespace"):
            return self._namespace(node) if is_assigned else _DECLINE
        compile_one = _EXPRESSIONS.get(type(node))
        return _DECLINE if compile_one is None else compile_one(self, node)

    def _name(self, node: nodes.Name) -> Node:
        is_special = node.name in _GLOBALS or node.name in self._namespaces or node.name == "loop"
        return _DECLINE if is_special else ["name", node.name]

    def _owner(self, node: nodes.Node, field: Any) -> Node:
        """What stands left of a dot or bracket: here a loop or a namespace may appear by name."""
        if isinstance(node, nodes.Name) and node.name == "loop":
            return ["name", "loop"] if self._n_loops and field in _LOOP_FIELDS else _DECLINE
        if isinstance(node, nodes.Name) and node.name in self._namespaces:
            return ["name", node.name]
        return self._of(node)

    def _getattr(self, node: nodes.Getattr) -> Node:
        return ["attribute", self._owner(node.node, node.attr), node.attr]

    def _getitem(self, node: nodes.Getitem) -> Node:
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            return ["slice", self._of(node.node), *(self._bound(bound) for bound in bounds)]
        field = node.arg.value if isinstance(node.arg, nodes.Const) else None
        return ["item", self._owner(node.node, field), self._of(node.arg)]

    def _bound(self, node: nodes.Node | None) -> Node:
        return ["const", None] if node is None else self._of(node)

    def _call(self, node: nodes.Call) -> Node:
        if node.kwargs or node.dyn_args or node.dyn_kwargs:
            return _DECLINE
        if _is_global(node.node, "strftime_now") and len(node.args) == 1:
            return ["now", self._of(node.args[0])]
        if isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS:
            return ["method", self._of(node.node.node), node.node.attr, *map(self._of, node.args)]
        return _DECLINE

    def _namespace(self, node: nodes.Call) -> Node:
        if node.args or node.dyn_args or node.dyn_kwargs or any(k.key.startswith("_") for k in node.kwargs):
            return _DECLINE
        return ["namespace", {keyword.key: self._of(keyword.value) for keyword in node.kwargs}]

    def _filter(self, node: nodes.Filter) -> Node:
        if node.name not in FILTERS or node.node is None or _has_odd_arguments(node):
            return _DECLINE
        return ["filter", self._of(node.node), node.name, *map(self._of, node.args)]

    def _test(self, node: nodes.Test) -> Node:
        if node.name == "defined" and isinstance(node.node, nodes.Name) and node.node.name in _GLOBALS:
            return ["const", True]
        if node.name not in TESTS or node.args or _has_odd_arguments(node):
            return _DECLINE
        return ["test", self._of(node.node), node.name]

    def _compare(self, node: nodes.Compare) -> Node:
        return ["compare", self._of(node.expr), *([op.op, self._of(op.expr)] for op in node.ops)]

    def _choose(self, node: nodes.CondExpr) -> Node:
        return ["choose", self._of(node.test), self._of(node.expr1), self._of(node.expr2)]


def _namespaces(template: nodes.Template) -> set[str]:
    """The names some `set` statement binds to a `namespace(…)`."""
    return {
        assign.target.name
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name)
        and isinstance(assign.node, nodes.Call)
        and _is_global(assign.node.node, "namespace")
    }


def _is_global(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _has_odd_arguments(node: nodes.Filter | nodes.Test) -> bool:
    return bool(node.kwargs or node.dyn_args or node.dyn_kwargs)


def _constant(_: Compiler, node: nodes.Const) -> Node:
    # What does not survive JSON (infinity) is not a constant of ours.
    is_plain = node.value is None or isinstance(node.value, str | bool | int)
    return ["const", node.value] if is_plain else _DECLINE


def _binary(operation: str) -> Callable[[Compiler, Any], Node]:
    return lambda compiler, node: [operation, compiler._of(node.left), compiler._of(node.right)]


def _unary(operation: str) -> Callable[[Compiler, Any], Node]:
    return lambda compiler, node: [operation, compiler._of(node.node)]


def _sequence(operation: str, field: str) -> Callable[[Compiler, Any], Node]:
    return lambda compiler, node: [operation, *map(compiler._of, getattr(node, field))]


_EXPRESSIONS: dict[type[nodes.Node], Callable[[Compiler, Any], Node]] = {
    nodes.Const: _constant,
    nodes.TemplateData: lambda _, node: ["const", node.data],
    nodes.Name: Compiler._name,
    nodes.Getattr: Compiler._getattr,
    nodes.Getitem: Compiler._getitem,
    nodes.Call: Compiler._call,
    nodes.Filter: Compiler._filter,
    nodes.Test: Compiler._test,
    nodes.Compare: Compiler._compare,
    nodes.CondExpr: Compiler._choose,
    nodes.Not: _unary("not"),
    nodes.Neg: _unary("neg"),
    nodes.And: _binary("and"),
    nodes.Or: _binary("or"),
    nodes.Add: _binary("add"),
    nodes.Sub: _binary("sub"),
    nodes.Mod: _binary("mod"),
    nodes.Concat: _sequence("join", "nodes"),
    nodes.List: _sequence("list", "items"),
    nodes.Tuple: _sequence("tuple", "items"),
}
