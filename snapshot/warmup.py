# SPDX-License-Identifier: Apache-2.0
"""An event that a function answers before it is captured: what it then imports and reads, no clone has to.

Nobody gets the answer. It is made as one that leaves would be, a streamed one to its end; what is printed and
logged meanwhile is discarded.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quickthaw.snapshot import afterwards
from quickthaw.snapshot.errors import BootstrapError
from quickthaw.snapshot.marshaller import Marshaller
from quickthaw.snapshot.streaming import StreamedResponse

Handler = Callable[[Any, Any], Any]

_TIMEOUT_MS = 600_000  # whoever captures waits as long as it likes
_ARN = "arn:aws:lambda:local:000000000000:function:warm-up"


def answer_file(handler: Handler, path: str) -> None:
    """Have `handler` answer the event in a file. Raises: BootstrapError, and what the handler does."""
    try:
        with open(path, "rb") as file:
            event = json.load(file)
    except (OSError, ValueError) as exc:
        raise BootstrapError(f"the warm-up event cannot be read: {path}: {exc}") from exc
    answer(handler, event)


def answer(handler: Handler, event: object) -> None:
    """Have `handler` answer `event`. Raises: what the handler does."""
    from awslambdaric.lambda_context import LambdaContext  # type: ignore[import-untyped]

    deadline_ms = int(time.time() * 1000) + _TIMEOUT_MS
    context = LambdaContext("warm-up", None, None, deadline_ms, _ARN)
    with _unheard():
        body, _ = Marshaller().marshal_response(handler(event, context))
        if isinstance(body, StreamedResponse):
            for _ in body:
                pass
            body.close()
        afterwards.run_deferred()


@contextmanager
def _unheard() -> Iterator[None]:
    """Discard what is written to stdout and stderr, by whatever language."""
    streams = (sys.stdout, sys.stderr)
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        stream.flush()
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        for stream in streams:
            stream.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
        for descriptor in (nowhere, *kept):
            os.close(descriptor)
