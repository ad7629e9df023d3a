# SPDX-License-Identifier: Apache-2.0
"""What happens to a text before it is cut into words."""

from __future__ import annotations

from typing import NamedTuple

from quickthaw.layers.text.pretokenizer import SPACE
from quickthaw.layers.text.unicode_classes import NFC_SHRINKAGE, to_nfc


class Normalizer(NamedTuple):
    """A model's normalizer; by default it changes nothing."""

    nfc: bool = False
    writes_spaces: bool = False  # as ▁
    prepends_space: bool = False  # to a text that is not empty, whatever it begins with

    @property
    def shrinkage(self) -> int:
        """A text becomes at most this many times shorter, in bytes."""
        return NFC_SHRINKAGE if self.nfc else 1

    def apply(self, text: str) -> str:
        """The normalized text."""
        if self.nfc:
            text = to_nfc(text)
        if self.prepends_space and text:
            text = SPACE + text
        return text.replace(" ", SPACE) if self.writes_spaces else text


PLAIN = Normalizer()
