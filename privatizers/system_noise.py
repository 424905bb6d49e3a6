"""Standard normal noise from the operating system's random bits, for records that are released.

No seeded generator stands between: what was released tells nothing of the noise that comes next.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from torch import Tensor

_BITS = 52  # So that the middle of each cell of [0, 1) is a float64, and neither 0 nor 1


def system_normal(*shape: int) -> Tensor:
    """Independent N(0, 1), float32 of ``shape``; each takes 8 bytes of the system's source.

    By inversion of uniform numbers with 52 bits: tails reach to 8.2 standard deviations.
    """
    count = math.prod(shape)
    bits = np.frombuffer(os.urandom(8 * count), "<u8") >> np.uint64(64 - _BITS)
    middles = (bits.astype(np.float64) + 0.5) / 2.0**_BITS
    found: Tensor = torch.special.ndtri(torch.from_numpy(middles)).float().reshape(shape)
    return found
