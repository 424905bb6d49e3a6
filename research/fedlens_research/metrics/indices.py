"""The ITE-style index: a k-NN figure in which Mireshghallah et al. state results; to compare only.

It estimates I(X; Q) as the divergence of the joint from the product of its margins, by distances to
nearest neighbours (Wang, Kulkarni and Verdú 2009), and divides by the same estimate of I(X; X). In
hundreds of dimensions with thousands of records neither is near what it estimates: I(X; X) is
infinite for continuous X, and the estimate grows with the number of records. Plain noise that costs
half a point of accuracy already scores a "loss" of 96 %, and the index falls when more is
suppressed. It bounds nothing: never quote it without attackers and the Gaussian bound beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.privatizers.private_data import PrivateDataError

NEIGHBOURS = 3
CHUNK = 500
LEAST_DISTANCE = 1e-9  # Equal records are taken to be this far apart, for the logarithm


@dataclass(frozen=True)
class IteStyle:
    """The index and its two parts, nats."""

    information: float  # estimate of I(X; Q)
    self_information: float  # the same estimate of I(X; X), which depends on the number of records
    loss: float  # 1 - information / self_information, the paper's "MI loss"
    records: int  # that it was made of


def ite_style_index(records: Tensor, released: Tensor, *, seed: int) -> IteStyle:
    """The index of raw records and the same released, float32 [n, ...]; read the warning above.

    Of colour pictures [n, c, h, w] both parts are means over the channels, as in the paper
    (appendix A.4.3).

    Raises:
        PrivateDataError: fewer than 20 records, or not as many of both.
    """
    pairs = [(records, released)]
    if records.ndim == 4 and records.shape == released.shape:
        pairs = list(zip(records.unbind(1), released.unbind(1), strict=True))
    one = sum(knn_information(*pair, seed=seed) for pair in pairs) / len(pairs)
    itself = sum(knn_information(raw, raw, seed=seed) for raw, _ in pairs) / len(pairs)
    return IteStyle(one, itself, 1 - one / itself if itself > 0 else math.nan, len(records))


def knn_information(records: Tensor, released: Tensor, *, seed: int) -> float:
    """I(X; Q) in nats: divergence of pairs in one half from shuffled pairs in the other."""
    if len(records) != len(released) or len(records) < 20:
        raise PrivateDataError(
            f"{len(records)} records and {len(released)} released; give as many, at least 20"
        )
    source = torch.Generator().manual_seed(seed)
    first, second = torch.randperm(len(records), generator=source).tensor_split(2)
    shuffled = second[torch.randperm(len(second), generator=source)]
    joint = _pairs(records[first], released[first])
    product = _pairs(records[second], released[shuffled])
    return knn_divergence(joint, product)


def knn_divergence(one: Tensor, two: Tensor, neighbours: int = NEIGHBOURS) -> float:
    """Estimate of the Kullback-Leibler divergence of ``one`` [n, d] from ``two`` [m, d], nats.

    Consistent as n, m grow with d fixed; slow to converge in d.
    """
    near = _distances(one, one, neighbours + 1)  # the nearest is the record itself
    far = _distances(one, two, neighbours)
    ratio = (far.clamp_min(LEAST_DISTANCE) / near.clamp_min(LEAST_DISTANCE)).log().mean()
    return one.shape[1] * float(ratio) + math.log(len(two) / (len(one) - 1))


def _pairs(records: Tensor, released: Tensor) -> Tensor:
    return torch.cat([records.flatten(1), released.flatten(1)], 1).double()


def _distances(rows: Tensor, among: Tensor, place: int) -> Tensor:
    """Distance of each row to its ``place``-th nearest."""
    return torch.cat(
        [torch.cdist(part, among).kthvalue(place, 1).values for part in torch.split(rows, CHUNK)]
    )
