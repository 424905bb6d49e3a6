"""What a round spends, as the accountants see it."""

from __future__ import annotations

from accountant.events import SubsampledGaussian
from server.config import Config


def round_event(config: Config) -> SubsampledGaussian:
    """One round's mechanism: each user's update, or in record mode each local step's gradients."""
    privacy, critic = config.privacy, config.critic
    record = privacy.unit == "record"
    return SubsampledGaussian(
        unit="record" if record else "user",
        sampler="poisson" if privacy.sampling_rate < 1 else "none",
        adjacency="add-remove",
        sampling_rate=privacy.sampling_rate,
        noise_multiplier=privacy.noise_multiplier,
        clipping_norm=privacy.clipping_norm,
        count=critic.local_steps if record else 1,
        released=f"{critic.family} critic update",
    )
