# SPDX-License-Identifier: Apache-2.0
"""The description and the code that reads requests know the same fields."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quickthaw.handler.fields import NEUTRAL, Fields
from quickthaw.handler.http import api
from quickthaw.handler.http.openapi import document
from tests.unit.handler.fakes import session


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[str]]]:
    """Where in a request → the names that are asked for there."""
    asked: dict[str, set[str]] = {}
    take = Fields.take

    def watched(fields: Fields, name: str) -> Any:
        asked.setdefault(fields.path(""), set()).add(name)
        return take(fields, name)

    with monkeypatch.context() as patch:
        patch.setattr(Fields, "take", watched)
        yield asked


def properties(name: str) -> set[str]:
    described: dict[str, Any] = document(session()[0])
    return set(described["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize(
    ("path", "schema", "bodies"),
    [
        ("/v1/completions", "CompletionRequest", [{"prompt": "?"}]),
        (
            "/v1/chat/completions",
            "ChatRequest",
            [
                {"messages": [{"role": "user", "content": "?"}], "max_completion_tokens": 1},
                {"messages": [{"role": "user", "content": "?"}]},
            ],
        ),
    ],
)
def test_a_request_has_the_fields_that_are_read(
    monkeypatch: pytest.MonkeyPatch, path: str, schema: str, bodies: list[dict[str, Any]]
) -> None:
    read = api.route(path).reader
    assert read is not None
    with reading(monkeypatch) as asked:
        for body in bodies:
            read(body, session()[0])
    assert properties(schema) == asked[""] | set(NEUTRAL)
    if "messages[0]." in asked:
        assert properties("Message") == asked["messages[0]."] | set(NEUTRAL)


def test_every_route_is_described() -> None:
    described = document(session()[0])["paths"]
    assert set(described) == {*api.ROUTES, "/v1/models/{model}"}
    for path, operations in described.items():
        methods = {name.upper() for name in operations if name != "parameters"}
        assert methods <= set(api.route(path).methods), path


def test_it_is_json_without_anything_dangling() -> None:
    described = document(session()[0])
    text = json.dumps(described, allow_nan=False)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(described["components"]["schemas"])
