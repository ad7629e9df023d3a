# SPDX-License-Identifier: Apache-2.0
import pytest

from quickthaw.handler.http.cors import Cors

METHODS = ("POST",)


def test_nobody_is_allowed_unless_told() -> None:
    assert Cors(()).headers("https://a.example") == {}
    assert Cors(()).preflight(METHODS, "authorization") == {"allow": "POST, OPTIONS"}


def test_an_origin_is_told_that_it_is_allowed_and_caches_that_others_may_not_be() -> None:
    cors = Cors({"https://a.example"})
    allowed = cors.headers("https://a.example")
    assert (allowed["access-control-allow-origin"], allowed["vary"]) == ("https://a.example", "origin")
    assert cors.headers("https://b.example") == cors.headers(None) == {"vary": "origin"}


def test_any_origin() -> None:
    assert Cors({"*"}).headers("https://a.example")["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("authorization,x-stainless-os", "authorization,x-stainless-os"),
        (None, "authorization, content-type"),
        ("x\r\nset-cookie: a", "authorization, content-type"),
    ],
)
def test_a_preflight_allows_the_headers_that_are_asked_for(asked: str | None, allowed: str) -> None:
    answer = Cors({"*"}).preflight(METHODS, asked)
    assert answer["access-control-allow-headers"] == allowed
    assert answer["access-control-allow-methods"] == answer["allow"] == "POST, OPTIONS"
