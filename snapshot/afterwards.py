# SPDX-License-Identifier: Apache-2.0
"""Work that can wait until an answer has left: logs, metrics, spans.

Lambda freezes a process when it asks for the next event, not when it has answered the last one. What is done
in between makes no caller wait, and is certain to be done.
"""

import logging
from collections.abc import Callable

Task = Callable[[], object]

_logger = logging.getLogger(__name__)
_is_enabled = False
_tasks: list[Task] = []


def enable() -> None:
    """Called by whoever calls `run_deferred` between an answer and the next event."""
    global _is_enabled
    _is_enabled = True


def defer(task: Task) -> None:
    """Run `task` once the answer at hand has left; now, where nobody would run it then."""
    if _is_enabled:
        _tasks.append(task)
    else:
        _run(task)


def run_deferred() -> None:
    """Run what waits, in the order in which it came."""
    while _tasks:
        _run(_tasks.pop(0))


def _run(task: Task) -> None:
    try:
        task()
    except Exception:  # the answer was given; what is only told about it must not take it back
        _logger.exception("what was to be done after an answer failed")
