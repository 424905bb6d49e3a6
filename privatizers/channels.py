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

from fedlens.privatizers.classifiers import noise_shape_of

Channel = Callable[..., Tensor]
CHUNK = 1000
"""Records whose codes are computed together."""


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


class Encoder(nn.Module):
    """What makes a filter's clean codes, with a filter's arguments, so that it can be exported."""

    noise_shape = ()
    choices = 0

    def __init__(self, filter_: nn.Module) -> None:
        super().__init__()
        self.filter = filter_

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Clean codes float32 [n, k] of records [n, ...]; noise and choice are not looked at."""
        none = records.new_zeros(len(records), *(noise_shape_of(self.filter) or (0,)))
        found: Tensor = self.filter.channel(records, none)  # type: ignore[operator]
        return found


@torch.no_grad()
def clean_codes(filter_: nn.Module, records: Tensor) -> Tensor:
    """Codes float32 [n, k] at noise 0 of records [n, ...], of a filter that shows some."""
    encode = Encoder(filter_)
    return torch.cat([encode(part, part).flatten(1) for part in torch.split(records, CHUNK)])
