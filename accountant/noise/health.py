"""A self-test of bits and noise, before a process uses them for anybody's privacy.

Known answers show that this installation computes what was tested; statistics of fresh bits show a
source that is stuck, repeats itself or leans. Both would be silent otherwise: noise that is wrong
looks like noise. Sound bits fail with a probability below 10^-9.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.noise.bits import BitSource, FixedBits, SystemBits, Words
from fedlens.accountant.noise.chances import chosen
from fedlens.accountant.noise.normal import rounded_normal
from fedlens.foundation.errors import FedlensError

_KEY = (20, 12)
_SCALES = (1, 3, 10**6 + 1, 2**36 + 1, 2**52)
_KNOWN = "ea618f865dfbab96c7242d98bfb61f8bd8b0754c680ede9881580b0a129b3878"
_WORDS, _DRAWS, _SCALE = 4096, 1 << 14, 2**40
_DEVIATIONS = 7.0
"""Standard deviations that a statistic may be off: a normal one is with probability 3·10^-12."""


class NoiseUnsound(FedlensError, RuntimeError):
    """Privacy noise failed its self-test."""


def require_sound_noise() -> None:
    """Test this process's noise, the first time that it is asked for.

    Raises:
        NoiseUnsound: it is not what the guarantee needs.
    """
    _test_process(os.getpid())


@cache
def _test_process(_process: int) -> None:
    for fault in (known_answers_fault(), bits_fault(SystemBits()), noise_fault(SystemBits())):
        if fault:
            raise NoiseUnsound(
                f"the self-test of privacy noise failed: {fault}; nothing was released. Fix this "
                "installation or its machine's source of random numbers (os.urandom), then start "
                "again"
            )


def known_answers() -> str:
    """Digest of draws at several scales and of a cohort, from a fixed key."""
    drawn = [rounded_normal(500, scale, FixedBits(*_KEY)) for scale in _SCALES]
    drawn.append(chosen(5000, 0.3, FixedBits(*_KEY)))
    whole = np.concatenate(drawn).astype("<i8")
    return hashlib.sha256(whole.tobytes()).hexdigest()


def known_answers_fault() -> str:
    """What is wrong with draws from a fixed key; empty when nothing is."""
    return "" if known_answers() == _KNOWN else "known bits give other draws than they must"


def bits_fault(source: BitSource) -> str:
    """What is wrong with two lots of a source's bits; empty when nothing is."""
    words = np.concatenate([source.words(_WORDS), source.words(_WORDS)])
    if len(np.unique(words)) < len(words):
        return "random words repeat"
    # standard deviation of the count of ones among n fair bits: √n / 2
    off = np.abs(_ones_by_place(words) - len(words) / 2) / (np.sqrt(len(words)) / 2)
    return "random bits are not fair" if off.max() > _DEVIATIONS else ""


def noise_fault(source: BitSource) -> str:
    """What is wrong with fresh noise; empty when nothing is."""
    values = rounded_normal(_DRAWS, _SCALE, source) / _SCALE
    if abs(values.mean()) * np.sqrt(_DRAWS) > _DEVIATIONS:
        return "noise has another mean than 0"
    # the variance of a squared standard normal number is 2
    if abs((values**2).mean() - 1) * np.sqrt(_DRAWS / 2) > _DEVIATIONS:
        return "noise has another variance than it must"
    paired = abs((values[1:] * values[:-1]).sum()) / np.sqrt(_DRAWS - 1)
    return "noise is correlated" if paired > _DEVIATIONS else ""


def _ones_by_place(words: Words) -> NDArray[np.int64]:
    bits = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64)
    counts: NDArray[np.int64] = bits.sum(axis=0, dtype=np.int64)
    return counts
