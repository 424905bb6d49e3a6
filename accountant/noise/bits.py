"""Where random bits come from: the operating system, or in tests a fixed seed.

The operating system's generator is a cryptographic one that the kernel seeds and reseeds. It keeps
no state in this process, so a fork, a restart, a copied folder or a restored process cannot draw
the same bits again.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class BitSource(Protocol):
    """Independent fair bits, 64 a word."""

    def words(self, count: int) -> Words:
        """The next ``count`` words, uint64 [count]; no word is handed out twice."""


class SystemBits:
    """Bits of the operating system's cryptographic generator."""

    def words(self, count: int) -> Words:
        """The next ``count`` words, uint64 [count]."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class FixedBits:
    """The same bits each time, on every machine: for known answers and tests, never for privacy."""

    def __init__(self, *key: int) -> None:
        """Start at the first word of what ``key``, numbers ≥ 0, stands for."""
        self._stream = np.random.Philox(seed=list(key))

    def words(self, count: int) -> Words:
        """The next ``count`` words, uint64 [count]."""
        return self._stream.random_raw(count)
