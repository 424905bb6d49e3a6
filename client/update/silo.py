"""The private draws of a node in record mode: which records take part in a step, and its noise."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.accountant.noise import BitSource, add_noise, chosen, private_source
from fedlens.client.messages import TrainRequest

_SAMPLING, _NOISE = 1, 2


def sampling_source(request: TrainRequest, node: int, step: int) -> BitSource:
    """The secret source of a step's Poisson sampling."""
    return private_source(request.mechanism.fixed_seed, request.round, _SAMPLING, node, step)


def chosen_of(records: int, request: TrainRequest, source: BitSource) -> Tensor:
    """Each of the next records with probability q, as ascending positions, int64."""
    return torch.from_numpy(chosen(records, request.mechanism.sampling_rate, source))


def drawn(records: int, request: TrainRequest, node: int, step: int) -> Tensor:
    """The records of a node that a step draws, each with probability q, as positions, int64."""
    return chosen_of(records, request, sampling_source(request, node, step))


def noised(total: Tensor, request: TrainRequest, node: int, step: int) -> Tensor:
    """A step's sum with its noise, float64, on the lattice of `fedlens.accountant.noise.lattice`.

    The noise is N(0, (zC)^2), C being the sum's sensitivity.
    """
    mechanism = request.mechanism
    return torch.from_numpy(
        add_noise(
            total.numpy(),
            noise_multiplier=mechanism.noise_multiplier,
            sensitivity=mechanism.clipping_norm,
            source=private_source(mechanism.fixed_seed, request.round, _NOISE, node, step),
        )
    )
