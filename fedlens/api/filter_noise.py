"""A kept filter with where its noise comes from: the operating system, or a device's key."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlens.api.release_budget import ENDING, ReleaseBudget, checked_limit, has_counted
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.files import make_folder_durably, write_durably
from fedlens.models.shapes import as_pixels, from_pixels
from fedlens.privatizers.channels import clean_codes, radius_of_codes
from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.noise_field import NoiseField
from fedlens.privatizers.record_noise import BLOCK, KEY_BYTES, device_key, records_noise

# Standard normal noise from the operating system's random bits, for records that are released.
#
# No seeded generator stands between: what was released tells nothing of the noise that comes
# next.

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


AT_ONCE = 16
"""Records that are filtered together, always as many: fewer are filled up, so that what is released
of one hangs on no other."""

NoiseSource = Callable[[Tensor, tuple[int, ...]], Tensor]
"""From records [n, ...] and the shape of one's noise to noise [n, *shape], standard normal."""


@dataclass(frozen=True)
class Releaser:
    """A filter with where its noise comes from.

    Attributes:
        network: in evaluation mode, of records, noise and opt-in bits (none given: all hidden).
        shape: of one record: (channels, side, side) of pictures, (steps, 1) of series.
        unit: what an entry of a series is multiplied with to be in the units it is read in.
        noise: the source.
        budget: what counts releases before they are made; None where nothing does.
    """

    network: nn.Module
    shape: tuple[int, ...]
    unit: float
    noise: NoiseSource
    budget: ReleaseBudget | None = None

    @property
    def of_series(self) -> bool:
        """Whether it takes series."""
        return len(self.shape) == 2

    @torch.no_grad()
    def release(self, records: Tensor) -> Tensor:
        """Released records [n, ...] of records [n, ...]."""
        shape = noise_shape_of(self.network)
        found = []
        for part in torch.split(records, AT_ONCE):
            noise = self.noise(part, shape) if shape else part.new_zeros(len(part), 0)
            found.append(self.network(_filled(part), _filled(noise), None)[: len(part)])
        return torch.cat(found)

    def release_pixels(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Released pictures of pictures, both uint8 [n, c, side, side]."""
        return as_pixels(self.release(from_pixels(pixels)))

    def admit_pixels(self, pixels: NDArray[np.uint8], *, whole: bool) -> NDArray[np.bool_]:
        """Which of pictures uint8 [n, c, side, side] the budget lets go: all, where there is none.

        They are counted as released. With ``whole`` all are, or none.

        Raises:
            WrongUse: ``whole``, and one does not fit; or the count's file cannot be used.
        """
        return self._admit(from_pixels(pixels), whole=whole)

    def _admit(self, records: Tensor, *, whole: bool) -> NDArray[np.bool_]:
        if self.budget is None or not isinstance(self.noise, KeyedNoise):
            return np.ones(len(records), dtype=bool)
        return np.array(self.budget.take(records, self.noise.codes(records), whole=whole))

    def release_series(self, series: NDArray[np.float64]) -> NDArray[np.float32]:
        """Released series of series, both [n, T], in the units that they are read in.

        Raises:
            WrongUse: one does not fit the budget, where there is one.
        """
        given = torch.from_numpy((series / self.unit).astype(np.float32))[..., None]
        self._admit(given, whole=True)
        released: NDArray[np.float32] = (self.unit * self.release(given)[..., 0]).numpy()
        return released

    def side(self) -> int:
        """Of its pictures.

        Raises:
            WrongUse: it takes none, or none that are square.
        """
        if len(self.shape) != 3 or self.shape[1] != self.shape[2]:
            raise WrongUse(f"the filter takes records {self.shape}, no square pictures")
        return self.shape[1]


def system_noise(records: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Fresh noise for each record from the operating system."""
    return system_normal(len(records), *shape)


class KeyedNoise:
    """Noise of each record that follows from a device's secret, the filter and the record.

    The same record behind the same filter always has the same noise, so a second release tells
    nothing that the first did not. Behind a filter with codes of bounded length near records have
    noise that is nearly the same (:mod:`fedlens.privatizers.noise_field`). Another filter has
    another noise, were it only another limit of the same weights: with one for both, the
    difference of two releases would be free of it.

    Attributes:
        field: of the filter's codes; None where they have no bound.
        radius: that bound.

    Args:
        network: the filter, in evaluation mode.
        key: of the device, 32 bytes or more (64 at most).
    """

    def __init__(self, network: nn.Module, key: bytes) -> None:
        self.network, self._key = network, _key_of(network, key)
        self.radius = radius_of_codes(network)
        self.field = None if self.radius is None else NoiseField(self._key, int(network.coded))  # type: ignore[arg-type]

    def __call__(self, records: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Noise [n, *shape] of records [n, ...], standard normal."""
        noise = records_noise(self._key, records, shape)
        if self.field is not None:
            noise[:, : self.field.size] = self.field.noise(self.codes(records), records)
        return noise

    def codes(self, records: Tensor) -> Tensor:
        """Clean codes float32 [n, k] of records [n, ...]: they stay on the device."""
        parts = torch.split(records, AT_ONCE)
        return torch.cat([clean_codes(self.network, _filled(one))[: len(one)] for one in parts])


def keyed_releaser(releaser: Releaser, path: Path, secret: bytes, limit: float | None) -> Releaser:
    """The releaser with noise of a device's secret, and a count where a budget is or was set.

    Args:
        releaser: of any noise.
        path: of the key; the count lies beside it.
        secret: the key.
        limit: a budget to set, in nats; None for the one that was set before, if any.

    Raises:
        WrongUse: the filter has no certificate to count with, or the budget is none.
    """
    noise = KeyedNoise(releaser.network, secret)
    place = path.resolve()  # one key has one count, whatever links there are to it
    told = place.with_name(place.name + ENDING)
    if checked_limit(limit) is None and not has_counted(told):
        return replace(releaser, noise=noise)
    if noise.field is None or noise.radius is None:
        raise WrongUse(
            f"--key {path}: counts nats, and this filter certifies none: its codes have no "
            "bound. Take a filter of method alpha, or another key without --budget"
        )
    return replace(
        releaser, noise=noise, budget=ReleaseBudget(told, noise.field, noise.radius, limit)
    )


def shares_noise(releaser: Releaser) -> bool:
    """Whether near records go out with noise that is nearly the same."""
    return isinstance(releaser.noise, KeyedNoise) and releaser.noise.field is not None


def _key_of(network: nn.Module, key: bytes) -> bytes:
    """The key for a filter, of every bit of its numbers."""
    digest = hashlib.blake2b(key=key, person=b"filter")
    for name, module in network.named_modules():
        digest.update(repr((name, type(module).__qualname__, _settings(module))).encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


def _filled(part: Tensor) -> Tensor:
    return torch.cat([part, part[:1].expand(AT_ONCE - len(part), *part.shape[1:])])


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """What shapes a layer's answers besides its tensors: numbers and texts, by name."""
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if name != "training" and isinstance(value, int | float | str | tuple)
    )


def device_secret(path: Path) -> tuple[bytes, str]:
    """The secret in a file, which is made where there is none, and what people should know of it.

    Raises:
        WrongUse: it cannot be read or written, or is no secret of 32 to 64 bytes.
    """
    try:
        if not path.exists():
            make_folder_durably(path.parent)
            write_durably(path, device_key(), private=True)
            return path.read_bytes(), f"{path}: a new key; it stays on this device, kept secret"
        key, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise WrongUse(f"--key {path}: cannot be used: {error.strerror}") from None
    if not KEY_BYTES <= len(key) <= BLOCK:
        raise WrongUse(
            f"--key {path}: has {len(key)} bytes; a key has {KEY_BYTES} to {BLOCK} secret ones. "
            "Name a file that is not there yet and one is made"
        )
    if mode & 0o077:
        return key, f"{path}: others can read this key; who has it can take the noise off again"
    return key, ""
