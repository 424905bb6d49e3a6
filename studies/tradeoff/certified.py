"""What can be certified of a released record, apart from all that is only estimated.

Where Gaussian noise of a known deviation is added to something computed from the record, and
nothing else of the record is sent, I(X;Q) ≤ ½ log det(I + Σ^-½ Cov Σ^-½) whatever the attacker.
It bounds what is told of the *whole record*, the sensitive attribute included, so it is far above
what attackers find. Where a filter has its noise inside a network, or a way around it, nothing is
certified. The released record itself is not differentially private.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privatizers.networks.filters import LinearFilter
from privatizers.networks.information import gaussian_information_bound
from privatizers.networks.masks import MaskFilter
from privatizers.networks.releasers import ConvReleaser

CHUNK = 1000
BOUND_WORDS = (
    "at most this is told of the whole record, by any attacker: Gaussian log-det bound for records "
    "with the train part's covariance, of which it is an estimate. The released record is not "
    "differentially private"
)
NONE_WORDS = (
    "nothing is certified: the noise does not stand between the record and all that is sent. The "
    "released record is not differentially private"
)


@dataclass(frozen=True)
class Certified:
    """A bound that no attacker passes, or that there is none."""

    # I(X;Q) is at most that, for records with the train part's covariance; None for none
    nats: float | None

    def row(self) -> dict[str, object]:
        """A JSON object; ``kind`` is ``none`` where nothing is certified."""
        none = self.nats is None
        return {
            "kind": "none" if none else "gaussian-log-det",
            "record_nats": self.nats,
            "released_is_differentially_private": False,
            "training": "none: trained without noise",
            "words": NONE_WORDS if none else BOUND_WORDS,
        }


@torch.no_grad()
def certify(filter_: nn.Module, records: Tensor) -> Certified:
    """The bound for a filter, with the covariance of raw ``records`` float32 [n, ...].

    Known: masks (kept entries and their noise), linear filters (θx + z), and releasers of images
    whose code has noise, through which all has to pass.
    """
    if isinstance(filter_, MaskFilter):
        kept = filter_.keep.flatten()
        return _bound(records.flatten(1)[:, kept], filter_.sigma.flatten()[kept])
    if isinstance(filter_, LinearFilter):
        means = filter_.means(records)
        return _bound(means, torch.ones(means.shape[1]))
    if isinstance(filter_, ConvReleaser) and filter_.coded:
        codes = _codes(filter_, records)
        return _bound(codes, torch.ones(codes.shape[1]))
    return Certified(None)


def _bound(sent: Tensor, sigma: Tensor) -> Certified:
    if not bool((sigma > 0).all()):
        return Certified(None)
    size = sent.shape[1]
    covariance = torch.cov(sent.double().T).reshape(size, size)
    return Certified(float(gaussian_information_bound(covariance, sigma)))


def _codes(releaser: ConvReleaser, records: Tensor) -> Tensor:
    """What the noise is added to, float32 [n, code]."""
    seen: list[Tensor] = []
    hook = releaser.encode.register_forward_hook(lambda _net, _pretrained, code: seen.append(code))
    try:
        for part in torch.split(records, CHUNK):
            releaser(part, records.new_zeros(len(part), *releaser.noise_shape))
    finally:
        hook.remove()
    return torch.cat(seen)
