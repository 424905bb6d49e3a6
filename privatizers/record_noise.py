"""Noise of a record: the same whenever a device releases that record, and known to it alone.

A filter's file takes its noise as an input, and what the noise promises it promises once. Drawn
anew for each release, ten releases of one record can be averaged: they tell as much as one with a
tenth of the noise's variance. So a device derives the noise from a secret key of its own and the
record's bytes. A second release is then the same bits, and tells nothing that the first did not.

The stream is BLAKE2b (RFC 7693) keyed with the device's secret, of the record's digest and a
counter; its bits become normals by the Box-Muller transform, in float64. To who lacks the key it is
noise drawn at random: no keyed hash of this kind is known to be told from that. Who has the key can
take the noise off again: it comes from the operating system (:func:`device_key`), never leaves
the device, and is kept as long as records may be released again.

Two records that differ in a single bit have independent noises. A device that releases *similar*
records of one thing (the frames of a video, a picture compressed anew) so releases it several
times; filters with a code of bounded length have noise that these share
(:mod:`fedlens.privatizers.noise_field`). Equal records have equal releases, and show that they are
equal.

A key is for *one* filter: with one for two, a record has one noise behind both, and the difference
of its releases is free of it. `fedlens.api.filter_noise.KeyedNoise` derives a key for each, of
every bit of its numbers. So **who supplies filters can have a record's noise drawn anew**: ten
filters that differ in the last bit of one weight release a record with ten independent noises,
which average like any ten. What a code certifies holds for each filter by itself; a device that
takes filters from others must count them.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.privatizers.protocol import PrivatizerError

KEY_BYTES = 32
BLOCK = 64
"""Bytes of a digest: eight uniform numbers of 64 bits."""


def device_key() -> bytes:
    """A fresh secret of 32 bytes from the operating system, for one device and filter to keep."""
    return secrets.token_bytes(KEY_BYTES)


def record_noise(key: bytes, record: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal noise float32 [*shape], the same for the same key and record.

    Args:
        key: the device's secret for this filter, 32 bytes or more (64 at most).
        record: float32 [...], exactly as it is given to the filter; its shape counts.
        shape: the filter's ``noise_shape``.

    Raises:
        PrivatizerError: the key is shorter or longer, or the record is not finite float32.
    """
    check_key(key)
    if record.dtype != torch.float32 or not bool(torch.isfinite(record).all()):
        raise PrivatizerError(
            f"record is {record.dtype} or not finite; give finite float32, as the filter takes it"
        )
    found = normals(key, _digest(key, record), math.prod(shape)).astype(np.float32)
    return torch.from_numpy(found).reshape(tuple(shape))


def normals(key: bytes, label: bytes, count: int) -> NDArray[np.float64]:
    """``count`` independent N(0, 1), float64: the same for the same key and label.

    Raises:
        PrivatizerError: the key is shorter than 32 or longer than 64 bytes.
    """
    check_key(key)
    return _box_muller(_uniforms(key, label, count + count % 2))[:count]


def check_key(key: bytes) -> None:
    """Refuse what is no key.

    Raises:
        PrivatizerError: it is shorter than 32 or longer than 64 bytes.
    """
    if not KEY_BYTES <= len(key) <= BLOCK:
        raise PrivatizerError(
            f"key has {len(key)} bytes; give {KEY_BYTES} to {BLOCK} secret ones, as device_key() "
            "makes them"
        )


def records_noise(key: bytes, records: Tensor, shape: Sequence[int]) -> Tensor:
    """The noise of each record of a batch, float32 [n, *shape]; see :func:`record_noise`."""
    if len(records) == 0:
        return torch.zeros(0, *shape)
    return torch.stack([record_noise(key, record, shape) for record in records])


def _digest(key: bytes, record: Tensor) -> bytes:
    # +0.0 makes one number of the two zeros, which a filter cannot tell apart either
    plain = np.ascontiguousarray((record.detach().cpu() + 0.0).numpy()).astype("<f4")
    digest = hashlib.blake2b(key=key, person=b"record")
    digest.update(repr(tuple(record.shape)).encode())
    digest.update(plain.tobytes())
    return digest.digest()


def _uniforms(key: bytes, digest: bytes, count: int) -> NDArray[np.float64]:
    """Float64 [count] in (0, 1): 53 bits each, never 0 or 1."""
    blocks = -(-8 * count // BLOCK)
    stream = b"".join(
        hashlib.blake2b(digest + block.to_bytes(8, "big"), key=key, person=b"noise").digest()
        for block in range(blocks)
    )
    bits = np.frombuffer(stream, "<u8")[:count] >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) / 2.0**53


def _box_muller(uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = uniform[0::2], uniform[1::2]
    lengths, angles = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
    pairs: NDArray[np.float64] = np.stack(
        [lengths * np.cos(angles), lengths * np.sin(angles)], 1
    ).ravel()
    return pairs
