"""Numbers modulo 2^k in uint64 words: how sums are encoded, packed, masked and read back.

k is a whole number of bytes up to 64 bits. Sums run modulo 2^64, of which 2^k is a divisor, and
are cut to k bits where they leave.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedlens.foundation.secure_sum.errors import SecureSumError

Words = NDArray[np.uint64]
Whole = NDArray[np.int64]

_BLOCK = 1 << 17
"""Words of a mask that are made at a time: memory does not grow with the sum's size."""
_ZEROS = bytes(8 * _BLOCK)
_SPARE = 64
"""Bytes beyond the text that the cipher's buffer may need."""


def bits_for(largest: int) -> int:
    """The least k, a multiple of 8, whose signed numbers reach from −``largest`` to ``largest``.

    Raises:
        SecureSumError: more than 64 bits would be needed.
    """
    bits = 8 * -(-(int(largest).bit_length() + 1) // 8)
    if bits > 64:
        raise SecureSumError(f"sums up to {largest:.3g} need {bits} bits: at most 64 can be masked")
    return bits


def encoded(values: Whole, bits: int) -> Words:
    """Signed integers, int64 [n], modulo 2^k, uint64 [n]."""
    return values.view(np.uint64) & _cut(bits)


def decoded(words: Words, bits: int) -> Whole:
    """The signed integers in [−2^(k−1), 2^(k−1)) that ``words`` stand for, int64 [n]."""
    empty = np.uint64(64 - bits)
    found: Whole = (words << empty).view(np.int64) >> np.int64(64 - bits)
    return found


def packed(words: Words, bits: int) -> bytes:
    """The k bits of each word, k/8 bytes each, the least first."""
    cut = words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, : bits // 8]
    return cut.tobytes()


def unpacked(content: bytes, size: int, bits: int) -> Words:
    """What `packed` made of ``size`` words.

    Raises:
        SecureSumError: it has another length.
    """
    width = bits // 8
    if len(content) != size * width:
        raise SecureSumError("a masked sum has another length than was agreed")
    words = np.zeros((size, 8), dtype=np.uint8)
    words[:, :width] = np.frombuffer(content, dtype=np.uint8).reshape(size, width)
    return words.reshape(-1).view("<u8").astype(np.uint64, copy=False)


def add_mask(total: Words, key: bytes, *, subtract: bool = False) -> None:
    """Add the ChaCha20 stream of a key of 32 bytes to ``total``, in place and modulo 2^64.

    A key must mask one sum only: the stream always starts at its beginning (RFC 8439, nonce 0).
    """
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    buffer = bytearray(8 * min(_BLOCK, len(total)) + _SPARE)
    for start in range(0, len(total), _BLOCK):
        part = total[start : start + _BLOCK]
        stream.update_into(memoryview(_ZEROS)[: 8 * len(part)], buffer)
        mask = np.frombuffer(buffer, dtype="<u8", count=len(part))
        if subtract:
            part -= mask
        else:
            part += mask


def _cut(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
