"""What can be certified of a released record, apart from all that is only estimated.

Where Gaussian noise of a known deviation is added to something computed from the record, and
nothing else of the record is sent, I(X;Q) ≤ ½ log det(I + Σ^-½ Cov Σ^-½) whatever the attacker.
It bounds what is told of the *whole record*, the sensitive attribute included, so it is far above
what attackers find. Where a filter has its noise inside a network, or a way around it, nothing is
certified. The released record itself is not differentially private.

A code whose length is limited by construction is certified without a look at any record: see
:func:`fedlens.privatizers.networks.information.gaussian_capacity`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlens.privatizers.networks.filters import LinearFilter
from fedlens.privatizers.networks.information import gaussian_capacity, gaussian_information_bound
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.networks.spectral import SpectralReleaser

CAPACITY_WORDS = (
    "at most this is told of anything about the record, by any attacker and for any records: "
    "capacity of the Gaussian channel of the code, whose length is limited. It holds for one draw "
    "of noise a record: where a device with a key gives a record the same noise again, and of "
    "records that are alike one is released. The released record is not "
    "differentially private"
)
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

    nats: float | None  # I(X;Q) is at most that; None for none
    # for any records; else for records with the train part's covariance
    for_any: bool = False

    def row(self) -> dict[str, object]:
        """A JSON object; ``kind`` is ``none`` where nothing is certified."""
        none = self.nats is None
        kind = "gaussian-capacity" if self.for_any else "gaussian-log-det"
        return {
            "kind": "none" if none else kind,
            "record_nats": self.nats,
            "released_is_differentially_private": False,
            "training": "none: trained without noise",
            "words": NONE_WORDS if none else words_of(self.for_any),
        }


def words_of(for_any: bool) -> str:
    """What a bound means: for any records, or for those with the train part's covariance."""
    return CAPACITY_WORDS if for_any else BOUND_WORDS


@torch.no_grad()
def certify(filter_: nn.Module, records: Tensor) -> Certified:
    """The bound for a filter, with the covariance of raw ``records`` float32 [n, ...].

    Known: masks (kept entries and their noise), linear filters (θx + z), and releasers of images
    whose code has noise, through which all has to pass; of these the records say nothing.
    """
    if isinstance(filter_, MaskFilter):
        kept = filter_.keep.flatten()
        return _bound(records.flatten(1)[:, kept], filter_.sigma.flatten()[kept])
    if isinstance(filter_, LinearFilter):
        means = filter_.means(records)
        return _bound(means, torch.ones(means.shape[1]))
    if isinstance(filter_, ConvReleaser | SpectralReleaser) and filter_.coded:
        return Certified(gaussian_capacity(filter_.radius, filter_.coded), for_any=True)
    return Certified(None)


def _bound(sent: Tensor, sigma: Tensor) -> Certified:
    if not bool((sigma > 0).all()):
        return Certified(None)
    size = sent.shape[1]
    covariance = torch.cov(sent.double().T).reshape(size, size)
    return Certified(float(gaussian_information_bound(covariance, sigma)))
