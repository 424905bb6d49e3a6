"""The randomness that privacy rests on: noise and cohorts, from the operating system's entropy.

Every source is made for one purpose in one round and thrown away, so that no noise is ever drawn
twice. A fixed seed exists for tests alone and must be asked for by the process's environment too,
so that no configuration and no message from a server can switch the entropy off. The generator,
Philox, is counter-based and statistically strong, but not a proven cryptographic one.
"""

from __future__ import annotations

import os
import secrets

import numpy as np
from numpy.typing import NDArray

from foundation.errors import WrongUse

TEST_MODE_VARIABLE = "FEDLENS_TEST_MODE"


class FixedSeedRefused(WrongUse):
    """A fixed seed for privacy noise outside a test."""


def test_mode() -> bool:
    """Whether this process's environment says that it is a test (``FEDLENS_TEST_MODE=1``)."""
    return os.environ.get(TEST_MODE_VARIABLE) == "1"


def private_source(fixed_seed: int, *purpose: int) -> np.random.Generator:
    """A generator for one use.

    Args:
        fixed_seed: negative for 128 bits of operating system entropy (all that the generator's
            key holds), the only setting with a privacy guarantee; a seed ≥ 0 gives the same draws
            each time, in tests.
        purpose: numbers that keep the uses of one fixed seed apart (round, kind of draw, node).

    Raises:
        FixedSeedRefused: a fixed seed outside test mode.
    """
    if fixed_seed < 0:
        return np.random.Generator(np.random.Philox(seed=secrets.randbits(128)))
    if not test_mode():
        raise FixedSeedRefused(
            f"fixed seed {fixed_seed}: set {TEST_MODE_VARIABLE}=1, in tests only"
        )
    return np.random.Generator(np.random.Philox(seed=[fixed_seed, *purpose]))


def gaussian(
    size: int, *, noise_multiplier: float, sensitivity: float, source: np.random.Generator
) -> NDArray[np.float64]:
    """Noise of the Gaussian mechanism, float64 [size].

    Args:
        size: length of the vector it is added to.
        noise_multiplier: z, the standard deviation over the sensitivity.
        sensitivity: L2 sensitivity of that vector: the clipping norm C, for a *sum* of clipped
            contributions and one of them added or removed.
        source: of `private_source`, used for nothing else.
    """
    return source.normal(0.0, noise_multiplier * sensitivity, size)
