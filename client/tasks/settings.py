"""The settings of our own kinds of task, as they travel in requests."""

from __future__ import annotations

from typing import Literal

from fedlens.client.tasks.protocol import TaskSettings

EngineName = Literal["loop", "vmap", "columns"]
ProductPrecision = Literal["float32", "bfloat16"]


class FrozenSettings(TaskSettings):
    """Of ``frozen`` and ``focused``."""

    feature_seed: int
    """Public seed of the random features."""


class AnnotatorSettings(TaskSettings):
    """Of ``annotator``."""

    components: int
    features: str


class WganSettings(TaskSettings):
    """Of ``wgan``: the critic's and the generator's networks, and the local steps."""

    loss: Literal["wasserstein", "hinge"]
    width: int
    hidden: int
    local_steps: int
    local_batch: int
    local_rate: float
    weight_limit: float
    generator_width: int
    generator_latent: int
    engine: EngineName
    precision: ProductPrecision


class PrivatizerSettings(TaskSettings):
    """Of ``privatizer``: the networks' design and the objective."""

    method: str
    alpha: float
    weight: float
    network: str
    width: int
    adversary_width: int
    filter_share: float
    batch: int
    consenting: float
    sensitive_attribute: str


class FrequenciesSettings(TaskSettings):
    """Of ``frequencies``."""

    highest_frequency: int


class MomentsSettings(TaskSettings):
    """Of ``moments``."""

    highest_frequency: int
    sensitive_attribute: str


PLACES = 64
"""Coordinates over which a user's number is spread evenly: the vector is as long as the number is
large, and its sum along the diagonal has the noise that one coordinate would have. Audits look at
places of a release, so there are some."""


class ProbeSettings(TaskSettings):
    """Of ``probe``."""

    probe: str
    """The question, as people write it."""
    components: int
    features: str


class CardSettings(TaskSettings):
    """Of ``card``: none, for what is counted follows from the data's shape and classes."""
