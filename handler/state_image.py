# SPDX-License-Identifier: Apache-2.0
"""What this function has in a state image: keys and values of a prompt's beginning, and its working set.

`open_image` is called by an init that has one. Whatever is wrong with it, the start goes on without, and its
timeline says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quickthaw.layers import saved_kv
from quickthaw.layers.kv import KeyValueCache, n_shared
from quickthaw.snapshot import working_set
from quickthaw.snapshot.errors import ImageError
from quickthaw.snapshot.image import StateImage

if TYPE_CHECKING:
    from quickthaw.layers.architecture import ModelConfig
    from quickthaw.layers.shard_set import ShardSet
    from quickthaw.layers.spans import Spans

WORKING_SET = "working_set"


def open_image(path: str, directory: str, shards: ShardSet) -> ImagePrefix | None:
    """The prefix in an image of these shards, which are in `directory` and begin to be read ahead."""
    manifest, spans = shards.manifest, shards.spans
    try:
        with spans.timed("state image"):
            image = StateImage.open(path, saved_kv.fingerprint(manifest))
            token_ids = saved_kv.token_ids(image.section("token_ids"))
            ranges = working_set.decode(bytes(image.section(WORKING_SET)))
            working_set.read_ahead(directory, ranges)
    except (ImageError, ValueError) as exc:
        _say(spans, exc)
        return None
    return ImagePrefix(image, token_ids, manifest.model, spans)


class ImagePrefix:
    """A beginning whose keys and values are in an image. They are looked at when a prompt begins so."""

    def __init__(self, image: StateImage, token_ids: list[int], model: ModelConfig, spans: Spans) -> None:
        self._image = image
        self._token_ids = token_ids
        self._model = model
        self._spans = spans

    def n_shared(self, token_ids: Sequence[int]) -> int:
        """How many of these it can stand for: for less than half of it, checking the whole is too much."""
        n_tokens = n_shared(self._model, self._token_ids, token_ids)
        return n_tokens if 2 * n_tokens >= len(self._token_ids) else 0

    def load(self, n_tokens: int, cache: KeyValueCache) -> None:
        """Put its first n_tokens into an empty cache, or none where the image is damaged."""
        try:
            with self._spans.timed("prefix"):
                data = self._image.section("kv")
                saved_kv.load(data, self._model, self._token_ids, n_tokens, cache)
        except (ImageError, ValueError) as exc:
            self._token_ids = []
            _say(self._spans, exc)


def _say(spans: Spans, reason: Exception) -> None:
    with spans.timed(f"state image ignored: {reason}"):
        pass
