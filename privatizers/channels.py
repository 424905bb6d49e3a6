"""What an attacker who has a filter's weights can ask of it: the code behind a release.

Every device carries the filter, so its weights are public. A network that says what its releases
are computed from (``channel``) can be attacked there, where noise is least in the way: all that
follows is post-processing, and no reader of the release knows more (data processing).

A network may offer:

- ``channel(records, noise, choice=None)``: float32 [n, k], everything about the records that the
  release is computed from, its noise included.
- ``decoded(code)``: the release without the noise that is added to it, of codes [n, k].
- ``output_noise_std``, ``low``, ``high``: of the noise that is added then, and what it is cut to.
- ``radius`` and ``coded``: a limit of the clean code's length, and k numbers of noise in front.
- ``repeats_noise``: True where a device gives one record the same noise whenever it releases it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Channel = Callable[..., Tensor]


def channel_of(filter_: nn.Module) -> Channel | None:
    """What the filter's releases are computed from; None where it does not say."""
    found: Channel | None = getattr(filter_, "channel", None)
    return found


def decoder_of(filter_: nn.Module) -> Channel | None:
    """From codes to releases without their noise; None where the filter does not say."""
    found: Channel | None = getattr(filter_, "decoded", None)
    return found


def noise_repeats(filter_: nn.Module) -> bool:
    """Whether a record that is released again goes out with the noise that it had."""
    return bool(getattr(filter_, "repeats_noise", False))


def radius_of_codes(filter_: nn.Module) -> float | None:
    """r, that none of the filter's codes is longer than; None where none has such a limit."""
    found: float | None = getattr(filter_, "radius", None)
    return found if getattr(filter_, "coded", 0) and channel_of(filter_) else None


@torch.no_grad()
def clean_codes(filter_: nn.Module, records: Tensor) -> Tensor:
    """Codes float32 [n, k] of records [n, ...] without their noise: for the device alone."""
    shape: tuple[int, ...] = filter_.noise_shape  # type: ignore[assignment]
    found: Tensor = filter_.channel(records, records.new_zeros(len(records), *shape))  # type: ignore[operator]
    return found
