"""Record mode: a silo's critic steps with per-record clipping and noise added on the node.

DP-SGD (Abadi et al., arXiv:1607.00133, algorithm 1): each step draws every record of the silo with
probability q, clips its gradient to C, sums, adds N(0, (zC)^2) and divides by a fixed number. A
record's gradient is that of the critic's loss on the record itself, against generated images of
its class: the latter are public, and inside the clip they cancel what all records have in common,
which would otherwise fill it. Opacus computes the gradients record by record; clipping and noise
are the project's own, since a record with a non-finite gradient must contribute nothing and the
noise must come from the operating system's entropy.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from opacus import GradSampleModule
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from accountant.noise import gaussian, private_source
from client.clipping import clip_and_sum
from client.cohort import sound_records
from client.critics.wgan import FAKES_PER_CLASS, draw_fakes, load_networks
from client.data import LocalData, LocalUsers
from client.records import TrainReply, TrainRequest
from models.critics import WganCritic
from models.limits import clamp_weights, weight_limits

_SAMPLING, _NOISE = 1, 2


def train_records(users: LocalUsers, request: TrainRequest) -> TrainReply:
    """The silo's noised change of the critic after ``local_steps`` private steps.

    Guarantees: each step is a Poisson-subsampled Gaussian mechanism at record level with the
    request's sampling rate and noise multiplier, relative to the L2 sensitivity C of the sum of
    clipped gradients when one record is added or removed.
    """
    silo = _pooled(users)
    critic, generator = load_networks(users, request)
    start = parameters_to_vector(critic.parameters()).detach().clone()
    limits = weight_limits(critic, float(request.settings["weight_limit"]))
    steps = int(request.settings["local_steps"])
    for step in range(steps):
        fakes = draw_fakes(generator, FAKES_PER_CLASS, request.seed + step)
        against = fake_gradients(critic, fakes, str(request.settings["loss"]))
        slope = _private_slope(critic, silo, against, request, users.partition, step)
        weights = parameters_to_vector(critic.parameters()).detach()
        rate = float(request.settings["local_rate"])
        vector_to_parameters(weights - rate * slope.to(weights), critic.parameters())
        clamp_weights(critic, limits)
    change = parameters_to_vector(critic.parameters()).detach() - start
    return TrainReply(change.cpu().double().numpy(), np.zeros(0, dtype=np.int64))


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
    settings = request.settings
    seed = int(settings["fixed_seed"])
    bound = float(settings["clipping_norm"])
    draw = private_source(seed, request.round, _SAMPLING, node, step)
    chosen = np.flatnonzero(draw.random(len(silo.labels)) < float(settings["sampling_rate"]))
    total = torch.zeros(sum(p.numel() for p in critic.parameters()), dtype=torch.float64)
    for part in np.array_split(chosen, max(1, len(chosen) // 256)):
        if len(part):
            rows = torch.from_numpy(part)
            labels = silo.labels[rows]
            gradients = record_gradients(critic, silo.images[rows], labels, settings)
            total += clip_and_sum(gradients + against[labels.to(against.device)], bound)[0].cpu()
    noise = gaussian(
        len(total),
        noise_multiplier=float(settings["noise_multiplier"]),
        sensitivity=bound,
        source=private_source(seed, request.round, _NOISE, node, step),
    )
    # a fixed denominator: the realised batch, and even the silo's size, are private
    return (total + torch.from_numpy(noise)) / int(settings["local_batch"])


def record_gradients(
    critic: WganCritic, images: Tensor, labels: Tensor, settings: dict[str, Any]
) -> Tensor:
    """Each record's own gradient of the critic's loss on real images, float32 [n, P]."""
    device = next(critic.parameters()).device
    wrapped = GradSampleModule(critic, loss_reduction="sum")
    try:
        scores = wrapped(images.to(device), labels.to(device))
        hinge = settings["loss"] == "hinge"
        with warnings.catch_warnings():  # PyTorch notes that no input wants a gradient: intended
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            (F.relu(1 - scores) if hinge else -scores).sum().backward()
        samples = [cast(Any, p).grad_sample.flatten(1) for p in critic.parameters()]
        return torch.cat(samples, dim=1).detach()
    finally:
        wrapped.zero_grad()
        wrapped.to_standard_module()


def fake_gradients(critic: WganCritic, fakes: Tensor, loss: str) -> Tensor:
    """The gradient of the loss on generated images, class by class, float32 [classes, P].

    Public: no record enters.
    """
    rows = []
    for label, images in enumerate(fakes):
        scores = critic(images, torch.full((len(images),), label, device=images.device))
        value = F.relu(1 + scores).mean() if loss == "hinge" else scores.mean()
        gradients = torch.autograd.grad(value, list(critic.parameters()))
        rows.append(torch.cat([g.reshape(-1) for g in gradients]))
    return torch.stack(rows)
