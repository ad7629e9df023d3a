# SPDX-License-Identifier: Apache-2.0
"""`quickthaw snapshot image`: computes a prompt's beginning once, for every start that has the image."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quickthaw.handler import direct, events
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.errors import RouteNotFoundError
from quickthaw.handler.generation import Generation
from quickthaw.handler.http import api
from quickthaw.handler.http.http_event import HttpEvent
from quickthaw.handler.session import Session
from quickthaw.handler.state_image import WORKING_SET
from quickthaw.layers import saved_kv
from quickthaw.layers.kv import KeyValueCache
from quickthaw.snapshot import image, working_set


class ImageReport(NamedTuple):
    """What an image holds."""

    path: Path
    n_tokens: int
    n_ranges: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.path} now holds {self.n_tokens} tokens of prompt and {self.n_ranges} stretches of files "
            f"to read ahead: {self.size_bytes:,} bytes; QUICKTHAW_STATE_IMAGE names it to a function"
        )


def make_image(out: Path, config: HandlerConfig, event: object) -> ImageReport:
    """Write the image of what requests like `event` begin with.

    Raises: LayersError, RequestError, ImageWriteError.
    """
    session = Session.open(config._replace(state_image=None))
    recorder = working_set.Recorder(config.layers.shards)
    token_ids = session.prompts.read_shared(_generation(event, session))
    cache = _computed(session, token_ids, recorder)
    sections = {**saved_kv.dump(cache), WORKING_SET: working_set.encode(recorder.ranges)}
    image.write(str(out), saved_kv.fingerprint(session.shards.manifest), sections)
    return ImageReport(out, len(token_ids), len(recorder.ranges), out.stat().st_size)


def _computed(session: Session, token_ids: Sequence[int], recorder: working_set.Recorder) -> KeyValueCache:
    """The keys and values of the tokens; before each layer, the recorder looks what was touched."""
    cache = KeyValueCache(session.shards.manifest.model)
    session.engine.before_layer = recorder.note
    session.engine.forward(token_ids, cache)
    recorder.note()
    return cache


def _generation(event: object, session: Session) -> Generation:
    """What an event asks for, as the function reads it. Raises: RequestError."""
    wire = events.parse(event)
    if not isinstance(wire, HttpEvent):
        return direct.read_request(wire.body(), session).generation
    reader = api.route(wire.path).reader
    if reader is None:
        raise RouteNotFoundError(f"{wire.path} computes nothing: an image is made of a completion or a chat")
    return reader(wire.body(), session)[0].generation
