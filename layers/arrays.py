# SPDX-License-Identifier: Apache-2.0
"""Names for kinds of arrays, to be imported under TYPE_CHECKING: numpy.typing costs 1 ms of a start."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Weight = npt.NDArray[Any]  # f32, or u16 that holds the bits of bf16
Logits = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint32]
