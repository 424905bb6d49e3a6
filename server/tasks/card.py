"""A data card on the server: users' histograms as a noised mean.

Nothing is learned from it. What it says is read from the run's kept releases
(`fedlens.diagnosis.cards`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedlens.client.tasks.settings import CardSettings
from fedlens.models.cards.statistics import card_layout
from fedlens.server.config.section import ConfigError
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest


class CardTask(ServerTask):
    """One card; several rounds are averaged where it is read.

    Raises:
        ConfigError: the run protects records, or looks through a filter, whose pictures are not
            the users'; or users are drawn, whose number would be another error of every bar.
    """

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self.shows = any(task.shows for task in context.earlier.values())
        self.size = card_layout(context.shape, context.record_classes).size
        where = f"tasks.{context.name}"
        if context.config.privacy.unit != "user":
            raise ConfigError(f"{where}: a card is of users, set privacy.unit = 'user'")
        if self._settings.sampling_rate < 1:
            raise ConfigError(
                f"{where}.sampling_rate = {self._settings.sampling_rate!r} cannot be used: a card "
                "asks everyone, set 1.0"
            )
        if context.config.privatizer.active:
            raise ConfigError(
                f"{where}: a card is of pictures as they are, set privatizer.kind = 'none'"
            )

    def request(self) -> TaskRequest:
        """Nothing but that a card is asked for."""
        return TaskRequest(CardSettings())

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Leave a noised mean, float64 [P], to the kept releases."""
        return {}

    def state(self) -> Arrays:
        """Nothing."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Take up nothing."""
