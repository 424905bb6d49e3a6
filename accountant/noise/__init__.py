"""The randomness that privacy rests on: noise and cohorts, from the operating system's entropy.

From the bottom up: bits (`bits`), exact draws from them (`normal`, `chances`, with `decisions`),
the mechanism on a lattice (`lattice`), noise that many nodes add together (`discrete`, `shares`), a
self-test (`health`) and sources of private use (`sources`). All noise and every secret cohort of
the product is drawn here.
"""

from fedlens.accountant.noise.bits import BitSource
from fedlens.accountant.noise.chances import chosen, most_chosen
from fedlens.accountant.noise.health import NoiseUnsound, require_sound_noise
from fedlens.accountant.noise.lattice import add_noise, gaussian, on_lattice, pitch
from fedlens.accountant.noise.sources import (
    TEST_MODE_VARIABLE,
    FixedSeedRefused,
    private_source,
    test_mode,
)

__all__ = [
    "TEST_MODE_VARIABLE",
    "BitSource",
    "FixedSeedRefused",
    "NoiseUnsound",
    "add_noise",
    "chosen",
    "gaussian",
    "most_chosen",
    "on_lattice",
    "pitch",
    "private_source",
    "require_sound_noise",
    "test_mode",
]
