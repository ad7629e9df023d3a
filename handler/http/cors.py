# SPDX-License-Identifier: Apache-2.0
"""Which web pages may read an answer: the headers of cross-origin resource sharing.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

ANY = "*"
_PREFLIGHT_AGE_S = 86_400


class Cors:
    """Allows some origins, or any, or none."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = origins

    def headers(self, origin: str | None) -> dict[str, str]:
        """What each response says to a page of `origin`."""
        if not self._origins:
            return {}
        if ANY in self._origins:
            allowed = {"access-control-allow-origin": ANY}
        else:
            allowed = {"vary": "origin"}  # a cache must not give one page's answer to another
            if origin is None or origin not in self._origins:
                return allowed
            allowed["access-control-allow-origin"] = origin
        return {**allowed, "access-control-expose-headers": "x-request-id"}

    def preflight(self, methods: Sequence[str], asked_headers: str | None) -> dict[str, str]:
        """What the answer to OPTIONS adds."""
        allowed = {"allow": ", ".join((*methods, "OPTIONS"))}
        if not self._origins:
            return allowed
        return {
            **allowed,
            "access-control-allow-methods": allowed["allow"],
            "access-control-allow-headers": _quotable(asked_headers) or "authorization, content-type",
            "access-control-max-age": str(_PREFLIGHT_AGE_S),
        }


def _quotable(asked_headers: str | None) -> str | None:
    """By name, and whatever clients add about themselves: the wildcard covers no `authorization`."""
    is_quotable = asked_headers is not None and asked_headers.isascii() and asked_headers.isprintable()
    return asked_headers if is_quotable else None
