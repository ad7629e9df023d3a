# SPDX-License-Identifier: Apache-2.0
"""The entry point, `quickthaw.handler.app.lambda_handler`. Importing this module is the init phase.

It runs under `python -m quickthaw.snapshot.bootstrap`, which streams, and under `python -m awslambdaric`,
which does not.
"""

from typing import Any

from quickthaw.handler.config import HandlerConfig, keep_blas_single_threaded
from quickthaw.handler.timeline import Timeline
from quickthaw.snapshot.config import is_to_be_captured

_timeline = Timeline()
keep_blas_single_threaded()

# Only now, since it reads the environment; and here, so that its time has a name.
import numpy  # noqa: E402, F401

_timeline.mark("numpy")

from quickthaw.handler.function import Context, Function  # noqa: E402
from quickthaw.handler.session import Session  # noqa: E402

_timeline.mark("imports")
_session = Session.open(HandlerConfig.from_env())
_function = Function(_session, _timeline)
if is_to_be_captured():
    from quickthaw.handler import capture

    capture.register_hooks(_function, _session)
_timeline.mark("init")


def lambda_handler(event: object, context: Context) -> Any:
    """Answer one event; what it may ask and what comes back is in direct.py and api.py."""
    return _function.answer(event, context)
