"""A data card on the server: users' histograms as a noised mean.

Nothing is learned from it. What it says is read from the run's kept releases
(`fedlens.diagnosis.cards`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from fedlens.client.tasks.settings import CardSettings
from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.expectations import check_expectations, parse_expectations
from fedlens.models.cards.statistics import CardLayout, card_layout
from fedlens.server.config.section import ConfigError
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest

if TYPE_CHECKING:
    from fedlens.server.config.card import CardConfig


class CardTask(ServerTask):
    """One card; several rounds are averaged where it is read.

    Raises:
        ConfigError: the run protects records, or looks through a filter, whose pictures are not
            the users'; users are drawn or of a side whose share is guessed, whose number would be
            another error of every bar; the clip would cut them; or what is expected can never be
            told from this card.
    """

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self.shows = any(task.shows for task in context.earlier.values())
        layout = card_layout(context.shape, context.record_classes)
        self.size = layout.size
        where = f"tasks.{context.name}"
        if context.config.privacy.unit != "user":
            raise ConfigError(f"{where}: a card is of users, set privacy.unit = 'user'")
        if self._settings.sampling_rate < 1:
            raise ConfigError(
                f"{where}.sampling_rate = {self._settings.sampling_rate!r} cannot be used: a card "
                "asks everyone, set 1.0"
            )
        if context.config.split.expected < 1:
            raise ConfigError(
                f"split.share = {context.config.split.share!r} cannot be used: shares of users are "
                "of all enrolled, and this one is a guess: set 1.0"
            )
        if self._settings.clipping_norm < layout.longest:
            raise ConfigError(
                f"{where}.clipping_norm = {self._settings.clipping_norm!r} cannot be used: users "
                f"would be cut by it and look as if they held nothing: set {layout.longest:.3f} or "
                "more"
            )
        self._check_expectations(where, layout)
        if context.config.privatizer.active:
            raise ConfigError(
                f"{where}: a card is of pictures as they are, set privatizer.kind = 'none'"
            )

    def _check_expectations(self, where: str, layout: CardLayout) -> None:
        text = cast("CardConfig", self._settings).expect
        try:
            check_expectations(parse_expectations(text), layout.statistics)
        except WrongUse as error:
            raise ConfigError(f"{where}.expect: {error}") from None

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
