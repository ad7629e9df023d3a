# SPDX-License-Identifier: Apache-2.0
"""What our own handler does around a capture. Imported only where there is going to be one.

Before it, a few answers are rehearsed, so that a clone imports and maps nothing any more for its first one;
after a restore nothing is left of them but that. A warm-up event of the user's takes their place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from quickthaw.handler.config import HandlerConfig
from quickthaw.snapshot import warmup
from quickthaw.snapshot.hooks import register_after_restore, register_before_snapshot

if TYPE_CHECKING:
    from quickthaw.handler.function import Function
    from quickthaw.handler.session import Session

_logger = logging.getLogger(__name__)
_SAMPLED = {"max_tokens": 2, "temperature": 1.0, "seed": 0, "stream": True}
# A model answers those of which it has what they need: a chat template, a tokenizer, nothing.
_EVENTS = (
    {"messages": [{"role": "user", "content": "Hi"}], **_SAMPLED},
    {"prompt": "Hi", **_SAMPLED},
    {"prompt": [1], **_SAMPLED},
)


def register_hooks(function: Function, session: Session) -> None:
    """From here on nothing is told of a request until the process was restored."""
    function.is_rehearsing = True
    register_before_snapshot(session.shards.release)  # runs last: the one registered last runs first
    register_before_snapshot(_rehearse, function, session)
    register_after_restore(_restart, function)


def _rehearse(function: Function, session: Session) -> None:
    from quickthaw.handler.telemetry import (
        request_log,  # noqa: F401 - after the first answer it would cost 4 ms
    )

    session.upgrade()
    if function.has_answered:  # a warm-up event, whose computed prompt is there to be used
        return
    session.config = session.config._replace(kept_tokens=0)
    for event in _EVENTS:
        warmup.answer(function.answer, event)
    if not function.has_answered:
        _logger.warning("no rehearsed event was answered: each clone imports and maps for its first one")


def _restart(function: Function) -> None:
    function.restart(HandlerConfig.from_env())
