"""A task's mechanism: what its rounds spend, as the accountants see it, and its numbers."""

from __future__ import annotations

import math

from fedlens.accountant.bayesian.noised_norms import SplitNoise, split_noise
from fedlens.accountant.events import SubsampledGaussian
from fedlens.client.messages import Mechanism
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config
from fedlens.server.config.trimming import Trimming

NODE_EXCESS = 8.0
"""A node may hold this many times the records that are declared of it before its sums are refused.
"""
NOISE_EXCESS = 20.0
"""Standard deviations that the norm of a node's noise may lie above √P; see `largest_sum`."""


def round_event(config: Config, task: TaskConfig) -> SubsampledGaussian:
    """One round of a task: each user's update and norm, or in record mode each step's gradients.

    Both parts of a user's round are one event: see `fedlens.accountant.bayesian.noised_norms`.
    """
    record, noise = config.privacy.unit == "record", round_noise(config, task)
    return SubsampledGaussian(
        unit=config.privacy.unit,
        sampler="poisson" if task.sampling_rate < 1 else "none",
        adjacency="add-remove",
        sampling_rate=task.sampling_rate,
        noise_multiplier=task.noise_multiplier,
        clipping_norm=task.clipping_norm,
        count=task.steps_on_nodes if record else 1,
        released=_released(task, noise, distributed=config.aggregation.noise == "distributed"),
    )


def round_noise(config: Config, task: TaskConfig) -> SplitNoise:
    """The noise of a round's update (over C) and of its histogram of norms (over 1).

    In record mode nodes add all of the noise to their updates, and no norms are released.
    """
    share = config.privacy.norms_share if config.privacy.unit == "user" else 0.0
    return split_noise(task.noise_multiplier, share)


def _released(task: TaskConfig, noise: SplitNoise, *, distributed: bool) -> str:
    """What the ledger says that a round releases: each part with its noise multiplier."""
    by_nodes = ", by nodes" * distributed
    if math.isinf(noise.norms):
        return task.released + by_nodes
    parts = f"{task.released} (noise {noise.update:.6g}) and norms (noise {noise.norms:.6g})"
    return parts + by_nodes


def mechanism(config: Config, task: TaskConfig) -> Mechanism:
    """What nodes are told of a task's mechanism."""
    return Mechanism(
        unit=config.privacy.unit,
        sampling_rate=task.sampling_rate,
        noise_multiplier=task.noise_multiplier,
        clipping_norm=task.clipping_norm,
        denominator=denominator(config, task),
        steps=task.steps_on_nodes if config.privacy.unit == "record" else 1,
        fixed_seed=config.privacy.fixed_seed,
    )


def denominator(config: Config, task: TaskConfig) -> float:
    """The fixed number that a task's sum is divided by.

    In user mode that is qN, times the share that is declared of a split's side, N without those
    whose weight is trimmed; in record mode q times the records declared of a node. How many took
    part, and even how many records a node holds, is private.
    """
    if config.privacy.unit == "record":
        return task.sampling_rate * config.data.records_per_node
    users = config.data.users
    weight = users - 2 * config.aggregation.trimmed(users)
    return task.sampling_rate * (weight * config.split.expected)


def trimming_of(config: Config, task: TaskConfig) -> Trimming | None:
    """How a task's node sums are trimmed before the noise; None where they are not."""
    users = config.data.users
    cut = config.aggregation.trimmed(users)
    return Trimming(cut, users, task.clipping_norm) if cut else None


def release_deviation(config: Config, task: TaskConfig) -> float:
    """Standard deviation of the noise in each coordinate of a task's release.

    In record mode the release is the mean of the nodes' independently noised ones (``wgan``: of a
    single local step at learning rate 1). Where nodes share the noise, it is that of all of them:
    more than what is charged, which goes by those that are sure to add theirs.
    """
    one = round_noise(config, task).update * task.clipping_norm / denominator(config, task)
    one *= config.aggregation.sharing(config.data.nodes).excess
    return one if config.privacy.unit == "user" else one / math.sqrt(config.data.nodes)


def largest_sum(config: Config, task: TaskConfig, size: int) -> float:
    """L2 bound of what a node's noised and divided sum of clipped rows can be, in record mode.

    The server cannot see a node's records, so it goes by what is declared: `NODE_EXCESS` times the
    records declared of a node, each of norm C, and a noise vector of norm at most zC (√P + 20),
    which a Gaussian one exceeds with a probability below exp(−200) (concentration of a 1-Lipschitz
    function of P normal numbers). The bound keeps what is no sum at all out of the release; it is
    no part of the guarantee, which rests on the nodes' own clip and noise.
    """
    sums = NODE_EXCESS * task.clipping_norm
    noise = task.noise_multiplier * task.clipping_norm * (math.sqrt(size) + NOISE_EXCESS)
    return sums + noise / denominator(config, task)
