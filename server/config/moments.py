"""Settings of the tasks whose noised sums a privatizer is fitted on."""

from __future__ import annotations

from typing import Literal

from fedlens.server.config import needs
from fedlens.server.config.section import NoiseMultiplier, Positive
from fedlens.server.config.tasks import TaskConfig, TaskKind


class FrequenciesConfig(TaskConfig):
    """Sums that say where images' low frequencies lie; for ``privatizer.trained_by = "sums"``.

    It comes first. Each user sends the mean of the own images' lowest frequencies and of their
    squares.
    """

    provides = frozenset({needs.SCALES})
    trains_filter_by = "sums"

    kind: Literal["frequencies"] = "frequencies"
    noise_multiplier: NoiseMultiplier = 5.0
    clipping_norm: Positive = 2.0
    """C: L2 bound of a user's update; √10 is the longest that there is."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return "frequencies of images"


class MomentsConfig(TaskConfig):
    """Sums that say what images of each pair of class and attribute are like.

    For ``privatizer.trained_by = "sums"``; it comes right after a task of kind ``frequencies``.
    Each user sends, for each pair, the number of own images, the sum of their features and that of
    the features' products. The filter is fitted on the release of its last round, or on the mean of
    several rounds' releases, which costs nothing; all later tasks look through it.
    """

    requires = frozenset({needs.SCALES})
    provides = frozenset({needs.PRIVATIZER})
    trains_filter_by = "sums"

    kind: Literal["moments"] = "moments"
    noise_multiplier: NoiseMultiplier = 2.0
    clipping_norm: Positive = 3.0
    """C: L2 bound of a user's update. One image adds 1.44 at most, ten of several classes about
    3."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return "moments of images"


FREQUENCIES = TaskKind(FrequenciesConfig, "fedlens.server.tasks.frequencies:FrequenciesTask")
MOMENTS = TaskKind(MomentsConfig, "fedlens.server.tasks.moments:MomentsTask")
