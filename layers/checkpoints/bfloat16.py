# SPDX-License-Identifier: Apache-2.0
"""f32 → bf16, the upper half of an f32, as the uint16 that holds its bits.

f32   s eeeeeeee mmmmmmm mmmmmmmmmmmmmmmm
bf16  s eeeeeeee mmmmmmm                    rounded to nearest, ties to even
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_INFINITY_BITS = 0x7F80
_QUIET_BIT = 0x0040


def from_float32(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The nearest bf16 of each value; a NaN stays one, quieted.

    Raises: OverflowError when a finite value is so large that it would become infinite.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Adding half of what is cut off, less one when the kept part is even: carries round to nearest even.
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    is_special = (rounded & _INFINITY_BITS) == _INFINITY_BITS
    if is_special.any() or not np.isfinite(values).all():
        is_nan = np.isnan(values)
        rounded[is_nan] = (bits[is_nan] >> 16).astype(np.uint16) | _QUIET_BIT
        if (is_special & np.isfinite(values)).any():
            raise OverflowError(f"{float(np.abs(values[np.isfinite(values)]).max())} has no bf16")
    return rounded
