"""A round's mechanism: what it spends, as the accountants see it, and the numbers it is made of."""

from __future__ import annotations

import math

from accountant.events import SubsampledGaussian
from server.config.sections import MechanismConfig, PrivacyConfig
from server.config.tree import Config

SILO_EXCESS = 8.0
"""A silo may hold this many times the records that are declared of it before its sums are refused.
"""
NO_CRITICS = ("annotator", "privatizer")
"""Families that are trained, and are no critics."""
NOISE_EXCESS = 20.0
"""Standard deviations that the norm of a node's noise may lie above √P; see `largest_sum`."""


def mechanism_event(config: Config, settings: MechanismConfig, family: str) -> SubsampledGaussian:
    """One round of a part: each user's update, or in record mode each local step's gradients.

    Args:
        config: the run's.
        settings: the part's sampling rate, noise multiplier and clipping norm.
        family: of what is trained; only the ``wgan`` critic takes several steps on a node.
    """
    record = config.privacy.unit == "record"
    return SubsampledGaussian(
        unit="record" if record else "user",
        sampler="poisson" if settings.sampling_rate < 1 else "none",
        adjacency="add-remove",
        sampling_rate=settings.sampling_rate,
        noise_multiplier=settings.noise_multiplier,
        clipping_norm=settings.clipping_norm,
        count=config.critic.local_steps if record and family == "wgan" else 1,
        released=f"{family} update" if family in NO_CRITICS else f"{family} critic update",
    )


def round_event(config: Config) -> SubsampledGaussian:
    """One round of the critic."""
    return mechanism_event(config, config.privacy, config.critic.family)


def denominator(config: Config, settings: MechanismConfig) -> float:
    """The fixed number that a part's sum is divided by.

    In user mode that is qN. In record mode it is a node's own: the records declared of a silo,
    ``critic.local_batch`` over the critic's sampling rate, times the part's sampling rate. How many
    took part, and even how many there are in a silo, is private.
    """
    if config.privacy.unit == "user":
        return settings.sampling_rate * config.data.users
    if isinstance(settings, PrivacyConfig):
        return float(config.critic.local_batch)
    return settings.sampling_rate * config.critic.local_batch / config.privacy.sampling_rate


def release_deviation(config: Config, settings: MechanismConfig) -> float:
    """Standard deviation of the noise in each coordinate of a part's release.

    In record mode the release is the mean of the nodes' independently noised ones (``wgan``: of a
    single local step at learning rate 1).
    """
    one = settings.noise_multiplier * settings.clipping_norm / denominator(config, settings)
    return one if config.privacy.unit == "user" else one / math.sqrt(config.data.nodes)


def largest_sum(config: Config, settings: MechanismConfig, size: int) -> float:
    """L2 bound of what a node's noised and divided sum of clipped rows can be, in record mode.

    The server cannot see a node's records, so it goes by what is declared: `SILO_EXCESS` times the
    records declared of a silo, each of norm C, and a noise vector of norm at most zC (√P + 20),
    which a Gaussian one exceeds with a probability below exp(−200) (concentration of a 1-Lipschitz
    function of P normal numbers). The bound keeps what is no sum at all out of the release; it is
    no part of the guarantee, which rests on the nodes' own clip and noise.
    """
    sums = SILO_EXCESS * settings.clipping_norm
    noise = settings.noise_multiplier * settings.clipping_norm * (math.sqrt(size) + NOISE_EXCESS)
    return sums + noise / denominator(config, settings)
