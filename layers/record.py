# SPDX-License-Identifier: Apache-2.0
"""A JSON object of a file, read field by field: what is absent or of another type is named, with its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeGuard

from quickthaw.layers.errors import LayersError

if TYPE_CHECKING:
    from _typeshed import StrPath

# Beyond it an integer is no count, id or size of ours, and a float no longer tells it from its neighbours.
_INTEGER_LIMIT = 2**53


class Record:
    """The fields of one object. A method raises `error` when the field is not what it is named for."""

    def __init__(self, values: object, where: StrPath, error: type[LayersError], name: str = "") -> None:
        """`name` is the field of the file that holds `values`. Raises: `error` when it is no object."""
        self._where = where
        self._error = error
        self._name = name
        if type(values) is not dict:
            raise error(_unusable(name), where=where, expected="an object", found=_shown(values))
        self._values: dict[str, Any] = values

    def __contains__(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(key) is not None

    def get(self, key: str) -> Any:
        """The field as it is, of whatever type; None when it is not there."""
        return self._values.get(key)

    def is_list(self, key: str) -> bool:
        """Whether the field is a list."""
        return type(self._values.get(key)) is list

    def __iter__(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self._values)

    def empty(self) -> Record:
        """A record of the same place without fields."""
        return Record({}, self._where, self._error, self._name)

    def over(self, defaults: Mapping[str, Any]) -> Record:
        """This record, with defaults for fields that are not there; null is there."""
        return Record({**defaults, **self._values}, self._where, self._error, self._name)

    def exactly(self, keys: AbstractSet[str]) -> Record:
        """This record. Raises: `error` naming what it lacks, or what it has beyond `keys`."""
        if self._values.keys() != keys:
            key = min(self._values.keys() ^ keys)
            raise self.unusable(key, "no such field" if key in self._values else "a value")
        return self

    def text(self, key: str) -> str:
        """A string."""
        value = self._values.get(key)
        if type(value) is not str:
            raise self.unusable(key, "a string")
        return value

    def flag(self, key: str) -> bool:
        """A boolean."""
        value = self._values.get(key)
        if type(value) is not bool:
            raise self.unusable(key, "true or false")
        return value

    def integer(self, key: str) -> int:
        """An integer that is exact wherever it goes."""
        value = self._values.get(key)
        if not _is_integer(value):
            raise self.unusable(key, "an integer")
        return value

    def number(self, key: str) -> float:
        """A number that is neither infinite nor NaN."""
        value = self._values.get(key)
        if not _is_number(value):
            raise self.unusable(key, "a number")
        return float(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers."""
        value = self._values.get(key)
        if type(value) is not list or not all(map(_is_integer, value)):
            raise self.unusable(key, "a list of integers")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers, none infinite or NaN."""
        value = self._values.get(key)
        if type(value) is not list or not all(map(_is_number, value)):
            raise self.unusable(key, "a list of numbers")
        return tuple(map(float, value))

    def sha256(self, key: str) -> str:
        """A SHA-256, in hexadecimal."""
        if len(digest := self.text(key)) != 64:
            raise self.unusable(key, "64 hexadecimal digits")
        return digest

    def items(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self._values.get(key)
        if type(value) is not list:
            raise self.unusable(key, "a list")
        return value

    def child(self, key: str) -> Record:
        """An object."""
        return Record(self._values.get(key), self._where, self._error, self._path(key))

    def children(self, key: str) -> list[Record]:
        """A list of objects."""
        named = ((f"{self._path(key)}[{index}]", item) for index, item in enumerate(self.items(key)))
        return [Record(item, self._where, self._error, name) for name, item in named]

    def entries(self) -> Iterable[tuple[str, Record]]:
        """The fields of an object all of whose fields are objects."""
        return ((key, self.child(key)) for key in self._values)

    def unusable(self, key: str, expected: str) -> LayersError:
        """The error for a field whose value is not the one that is `expected`."""
        found = _shown(self._values[key]) if key in self._values else "nothing"
        return self._error(_unusable(self._path(key)), where=self._where, expected=expected, found=found)

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _is_integer(value: object) -> TypeGuard[int]:
    return type(value) is int and -_INTEGER_LIMIT < value < _INTEGER_LIMIT


def _is_number(value: object) -> TypeGuard[float]:
    return _is_integer(value) or (type(value) is float and abs(value) < float("inf"))


def _unusable(name: str) -> str:
    return f"unusable {name}" if name else "unusable content"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nested as deeply
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
