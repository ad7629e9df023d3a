# SPDX-License-Identifier: Apache-2.0
"""numpy's arrays as torch sees them: the same memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt


def view(array: npt.NDArray[Any]) -> Tensor:
    """The tensor of an array, which keeps it alive; 16 bits without a sign are those of bf16."""
    with warnings.catch_warnings():
        # That a tensor over memory that is mapped read-only must not be written: none is.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor
