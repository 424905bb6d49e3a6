"""Record mode of the convolutional critic: local steps with per-record clipping and noise.

DP-SGD (Abadi et al., arXiv:1607.00133, algorithm 1): each step draws every record of the node with
probability q, clips its gradient to C, sums, adds N(0, (zC)^2) and divides by a fixed number. A
record's gradient is that of the critic's loss on the record itself, against generated images of its
class: the latter are public, and inside the clip they cancel what all records have in common, which
would otherwise fill it. Opacus computes the gradients record by record; clipping and noise are the
project's own, since a record with a non-finite gradient must contribute nothing and the noise must
come from the operating system's entropy.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from opacus import GradSampleModule
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from client.clipping import clip_and_sum
from client.cohort_data import sound_records
from client.data import LocalData, LocalUsers
from client.messages import TrainRequest
from client.silo import drawn, noised
from client.tasks.settings import WganSettings
from client.tasks.wgan_networks import (
    FAKES_PER_CLASS,
    LOSSES,
    class_slopes,
    draw_fakes,
    load_networks,
)
from models.critics import WganCritic
from models.limits import clamp_weights, weight_limits


def train_steps(users: LocalUsers, request: TrainRequest, node: int) -> Tensor:
    """The noised change of the critic after its private local steps, float64 [P].

    Guarantees: each step is a Poisson-subsampled Gaussian mechanism at record level with the
    request's sampling rate and noise multiplier, relative to the L2 sensitivity C of the sum of
    clipped gradients when one record is added or removed.
    """
    settings, silo = WganSettings.model_validate(request.settings), _pooled(users)
    critic, generator = load_networks(users, request)
    start = parameters_to_vector(critic.parameters()).detach().clone()
    limits = weight_limits(critic, settings.weight_limit)
    for step in range(settings.local_steps):
        fakes = draw_fakes(generator, FAKES_PER_CLASS, request.seed + step)
        against = class_slopes(critic, fakes, LOSSES[settings.loss])
        slope = _private_slope(critic, silo, against, request, node, step)
        weights = parameters_to_vector(critic.parameters()).detach()
        vector_to_parameters(weights - settings.local_rate * slope.to(weights), critic.parameters())
        clamp_weights(critic, limits)
    change = parameters_to_vector(critic.parameters()).detach() - start
    return change.cpu().double()


def _pooled(users: LocalUsers) -> LocalData:
    parts = [sound_records(users, position) for position in range(len(users))]
    return LocalData(torch.cat([p.images for p in parts]), torch.cat([p.labels for p in parts]))


def _private_slope(
    critic: WganCritic,
    silo: LocalData,
    against: Tensor,
    request: TrainRequest,
    node: int,
    step: int,
) -> Tensor:
    """The gradient of a step: clipped by record, summed, noised once, over a fixed denominator."""
    bound, hinge = request.mechanism.clipping_norm, request.settings["loss"] == "hinge"
    chosen = drawn(len(silo.labels), request, node, step)
    total = torch.zeros(sum(p.numel() for p in critic.parameters()), dtype=torch.float64)
    for part in torch.split(chosen, 256):
        labels = silo.labels[part]
        gradients = record_gradients(critic, silo.images[part], labels, hinge=hinge)
        total += clip_and_sum(gradients + against[labels.to(against.device)], bound)[0].cpu()
    # fixed: the realised batch, and even how many records the node holds, are private
    return noised(total, request, node, step) / request.mechanism.denominator


def record_gradients(critic: WganCritic, images: Tensor, labels: Tensor, *, hinge: bool) -> Tensor:
    """Each record's own gradient of the critic's loss on real images, float32 [n, P]."""
    device = next(critic.parameters()).device
    wrapped = GradSampleModule(critic, loss_reduction="sum")
    try:
        scores = wrapped(images.to(device), labels.to(device))
        with warnings.catch_warnings():  # PyTorch notes that no input wants a gradient: intended
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            (F.relu(1 - scores) if hinge else -scores).sum().backward()
        samples = [cast(Any, p).grad_sample.flatten(1) for p in critic.parameters()]
        return torch.cat(samples, dim=1).detach()
    finally:
        wrapped.zero_grad()
        wrapped.to_standard_module()
