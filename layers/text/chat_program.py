# SPDX-License-Identifier: Apache-2.0
"""Runs a prepared chat template: a tree of JSON lists, so a first chat request need not import jinja2.

A node is `[operation, operand…]`; `chat_compiler.py` writes them, the tables at the end name them all. One
rule keeps the result exact: whatever jinja2 might do differently is declined, never imitated. An error, a
missing key that Python has an attribute for, an operation outside the tables: each raises `Declined`, and the
caller renders with jinja2 instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Node = list[Any]
Scope = dict[str, Any]


class Declined(Exception):  # noqa: N818 - not an error: an answer
    """The program does not know what jinja2 would print here."""


class Namespace(dict[str, Any]):
    """What `namespace(…)` makes: the one object a template may assign into."""


class _Undefined:
    """jinja2's Undefined as far as it is harmless: prints nothing and is false; all else is declined."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return ""

    def __repr__(self) -> str:
        raise Declined("jinja2 knows how an undefined value looks within a list")


UNDEFINED: Final = _Undefined()

# What evaluating a well-formed program over unforeseen messages can raise.
_FAILURES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


def run(program: list[Node], variables: Mapping[str, Any]) -> str:
    """Render `program` over `variables` (JSON values).

    Raises: `Declined` when jinja2 has to render instead.
    """
    out: list[str] = []
    try:
        _block(program, dict(variables), out)
    except _FAILURES as exc:
        raise Declined(str(exc)) from exc
    return "".join(out)


def _block(nodes: list[Node], scope: Scope, out: list[str]) -> None:
    for operation, *operands in nodes:
        _STATEMENTS[operation](scope, out, *operands)


def _value(scope: Scope, node: Node) -> Any:
    operation, *operands = node
    return _EXPRESSIONS[operation](scope, *operands)


def _decline(*_: Any) -> Any:
    raise Declined("outside the prepared subset")


# --- statements ---


def _text(_scope: Scope, out: list[str], text: str) -> None:
    out.append(text)


def _print(scope: Scope, out: list[str], node: Node) -> None:
    out.append(str(_value(scope, node)))


def _if(scope: Scope, out: list[str], branches: list[tuple[Node, list[Node]]], otherwise: list[Node]) -> None:
    for test, body in branches:
        if _value(scope, test):
            return _block(body, scope, out)
    return _block(otherwise, scope, out)


def _for(scope: Scope, out: list[str], target: str, iterable: Node, body: list[Node]) -> None:
    items = list(_value(scope, iterable))
    for index, item in enumerate(items):
        # Each turn starts from the outer names: as in jinja2, what a turn sets is gone with it.
        _block(body, {**scope, target: item, "loop": _loop(items, index)}, out)


def _loop(items: list[Any], index: int) -> Scope:
    left = len(items) - index
    loop = {"first": index == 0, "last": left == 1, "index": index + 1, "index0": index}
    loop |= {"revindex": left, "revindex0": left - 1, "length": len(items)}
    if index > 0:
        loop["previtem"] = items[index - 1]
    if left > 1:
        loop["nextitem"] = items[index + 1]
    return loop


def _set(scope: Scope, _out: list[str], name: str, node: Node) -> None:
    scope[name] = _value(scope, node)


def _set_field(scope: Scope, _out: list[str], name: str, field: str, node: Node) -> None:
    namespace = scope[name]
    if not isinstance(namespace, Namespace):
        _decline()
    namespace[field] = _value(scope, node)


# --- expressions ---


def _name(scope: Scope, name: str) -> Any:
    return scope.get(name, UNDEFINED)


def _item(scope: Scope, node: Node, key_node: Node) -> Any:
    value, key = _value(scope, node), _value(scope, key_node)
    try:
        return value[key]
    except (TypeError, LookupError):
        # jinja2 looks for an attribute next.
        if value is UNDEFINED or (isinstance(key, str) and hasattr(value, key)):
            _decline()
        return UNDEFINED


def _attribute(scope: Scope, node: Node, name: str) -> Any:
    value = _value(scope, node)
    if value is UNDEFINED or hasattr(value, name):
        _decline()
    return value.get(name, UNDEFINED) if isinstance(value, dict) else UNDEFINED


def _slice(scope: Scope, node: Node, *bounds: Node) -> Any:
    value = _value(scope, node)
    if not isinstance(value, list | str | tuple):
        _decline()
    return value[slice(*(_value(scope, bound) for bound in bounds))]


def _method(scope: Scope, node: Node, name: str, *arguments: Node) -> Any:
    value = _value(scope, node)
    if not isinstance(value, str):
        _decline()
    return _METHODS[name](value, *(_value(scope, argument) for argument in arguments))


def _filter(scope: Scope, node: Node, name: str, *arguments: Node) -> Any:
    return _FILTERS[name](_value(scope, node), *(_value(scope, argument) for argument in arguments))


def _default(value: Any, default: Any = "", boolean: bool = False) -> Any:
    return default if value is UNDEFINED or (boolean and not value) else value


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _test(scope: Scope, node: Node, name: str) -> bool:
    value = _value(scope, node)
    if value is UNDEFINED and name in ("iterable", "sequence"):
        _decline()  # jinja2's Undefined is an empty sequence
    return _TESTS[name](value)


def _compare(scope: Scope, node: Node, *rest: tuple[str, Node]) -> Any:
    left = _value(scope, node)
    result = True
    for operator, right_node in rest:
        right = _value(scope, right_node)
        result = _COMPARISONS[operator](left, right)
        if not result:
            break
        left = right
    return result


def _now(scope: Scope, node: Node) -> str:
    from datetime import datetime

    return datetime.now().strftime(_value(scope, node))  # the local time, as in the reference


_STATEMENTS: dict[str, Callable[..., None]] = {
    "text": _text,
    "print": _print,
    "if": _if,
    "for": _for,
    "set": _set,
    "set_field": _set_field,
    "decline": _decline,
}
_EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "const": lambda _, value: value,
    "name": _name,
    "item": _item,
    "attribute": _attribute,
    "slice": _slice,
    "method": _method,
    "filter": _filter,
    "test": _test,
    "compare": _compare,
    "not": lambda scope, a: not _value(scope, a),
    "and": lambda scope, a, b: _value(scope, a) and _value(scope, b),
    "or": lambda scope, a, b: _value(scope, a) or _value(scope, b),
    "choose": lambda scope, test, a, b: _value(scope, a if _value(scope, test) else b),
    "add": lambda scope, a, b: _value(scope, a) + _value(scope, b),
    "sub": lambda scope, a, b: _value(scope, a) - _value(scope, b),
    "mod": lambda scope, a, b: _value(scope, a) % _value(scope, b),
    "neg": lambda scope, a: -_value(scope, a),
    "join": lambda scope, *parts: "".join([str(_value(scope, part)) for part in parts]),
    "list": lambda scope, *items: [_value(scope, item) for item in items],
    "tuple": lambda scope, *items: tuple([_value(scope, item) for item in items]),
    "namespace": lambda scope, fields: Namespace({k: _value(scope, v) for k, v in fields.items()}),
    "undefined": lambda _: UNDEFINED,
    "now": _now,
    "decline": _decline,
}
_METHODS: dict[str, Callable[..., Any]] = {
    name: getattr(str, name)
    for name in ("strip", "lstrip", "rstrip", "startswith", "endswith", "split", "upper", "lower", "replace")
}
_FILTERS: dict[str, Callable[..., Any]] = {
    "trim": lambda value, characters=None: str(value).strip(characters),
    "upper": lambda value: str(value).upper(),
    "lower": lambda value: str(value).lower(),
    "string": str,
    "length": len,
    "count": len,
    "default": _default,
    "d": _default,
    "tojson": _to_json,
}
_TESTS: dict[str, Callable[[Any], bool]] = {
    "defined": lambda value: value is not UNDEFINED,
    "undefined": lambda value: value is UNDEFINED,
    "none": lambda value: value is None,
    "string": lambda value: isinstance(value, str),
    "mapping": lambda value: isinstance(value, dict),
    "iterable": lambda value: isinstance(value, str | list | tuple | dict),
    "sequence": lambda value: isinstance(value, str | list | tuple | dict),
    "boolean": lambda value: isinstance(value, bool),
    "true": lambda value: value is True,
    "false": lambda value: value is False,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "lteq": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gteq": lambda a, b: a >= b,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}
FILTERS: Final = _FILTERS.keys()
METHODS: Final = _METHODS.keys()
TESTS: Final = _TESTS.keys()
