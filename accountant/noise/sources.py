"""Sources of private randomness: one for each use, from the operating system's entropy.

A fixed seed exists for tests alone and must be asked for by the process's environment too, so that
no configuration and no message from a server can switch the entropy off.
"""

from __future__ import annotations

import os

from fedlens.accountant.noise.bits import BitSource, FixedBits, SystemBits
from fedlens.accountant.noise.health import require_sound_noise
from fedlens.foundation.errors import WrongUse

TEST_MODE_VARIABLE = "FEDLENS_TEST_MODE"


class FixedSeedRefused(WrongUse):
    """A fixed seed for privacy noise outside a test."""


def test_mode() -> bool:
    """Whether this process's environment says that it is a test (``FEDLENS_TEST_MODE=1``)."""
    return os.environ.get(TEST_MODE_VARIABLE) == "1"


def private_source(fixed_seed: int, *purpose: int) -> BitSource:
    """Bits for one use; the first time in a process, noise is tested before.

    Args:
        fixed_seed: negative for the operating system's bits, the only setting with a privacy
            guarantee; a seed ≥ 0 gives the same draws each time, in tests.
        purpose: numbers that keep the uses of one fixed seed apart (round, kind of draw, node).

    Raises:
        FixedSeedRefused: a fixed seed outside test mode.
        NoiseUnsound: noise fails its self-test.
    """
    if fixed_seed < 0:
        require_sound_noise()
        return SystemBits()
    if not test_mode():
        raise FixedSeedRefused(
            f"fixed seed {fixed_seed}: set {TEST_MODE_VARIABLE}=1, in tests only"
        )
    return FixedBits(fixed_seed, *purpose)
