"""A probe on the server: what nodes are asked, and the noised mean that comes back.

The release is the noised sum of users' numbers in [0, 1] over the fixed number of enrolled users.
Users without records, and those of a node that fails, count as 0: how many took part is private, so
no one may divide by it. An answer is low where users are missing, never high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedlens.client.messages import Vector
from fedlens.client.tasks.settings import PLACES, ProbeSettings
from fedlens.models.probes.asking import parse_probe
from fedlens.models.weights import to_vector
from fedlens.server.config import needs
from fedlens.server.config.section import ConfigError
from fedlens.server.config.tasks import AnnotatorConfig
from fedlens.server.ledger.prior_runs import load_released_annotator
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.annotator import AnnotatorTask
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest

ANSWER = "probe"
"""The figure of a round that has the mean of users' numbers."""


class ProbeTask(ServerTask):
    """One question; answers of several rounds are averaged.

    Raises:
        ConfigError: it does not go with the data or the unit, or lacks the network that it asks.
    """

    size = PLACES
    largest_reply = 1.0

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self.shows = any(task.shows for task in context.earlier.values())
        self._where = f"tasks.{context.name}"
        if context.config.privacy.unit != "user":
            raise ConfigError(f"{self._where}: a probe asks users, set privacy.unit = 'user'")
        question = parse_probe(self._settings.probe)
        question.check(context.shape, context.record_classes)
        self._own: AnnotatorTask | None = None
        self._known: tuple[AnnotatorConfig, Vector] | None = None
        if question.probe.needs_model:
            self._find_network(context)
        self._sum, self._releases = 0.0, 0

    def _find_network(self, context: TaskContext) -> None:
        if self._settings.model:
            given = f"{self._where}.model", self._settings.model
            known = load_released_annotator(*given, context.shape, context.record_classes)
            self._known = known.settings, known.vector
            return
        own = context.config.annotator
        try:
            self._own = context.provider(needs.LABELS)
        except LookupError:
            own = None
        if own is None:
            raise ConfigError(
                f"{self._where}.model = '': the probe {self._settings.probe!r} asks a network: "
                "name a run with an annotator, or schedule a task of kind 'annotator' before it"
            )
        self._known = own, np.zeros(0, dtype=np.float32)

    def request(self) -> TaskRequest:
        """The question, and the network that it asks."""
        if self._known is None:
            return TaskRequest(ProbeSettings(probe=self._settings.probe, components=0, features=""))
        settings, weights = self._known
        if self._own is not None:
            weights = to_vector(self._own.network)
        asked = ProbeSettings(
            probe=self._settings.probe,
            components=settings.components,
            features=settings.features,
        )
        return TaskRequest(asked, {"annotator": weights})

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Average a noised mean in, float64 [64]; noise may take it out of [0, 1].

        Along the diagonal, where users' numbers are, the noise has the deviation of a coordinate.
        """
        self._sum += float(release.sum()) / math.sqrt(PLACES)
        self._releases += 1
        return {ANSWER: self._sum / self._releases}

    def state(self) -> Arrays:
        """Sum and number of the releases."""
        return {"sum": np.array(self._sum), "releases": np.array(self._releases)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._sum, self._releases = float(state["sum"]), int(state["releases"])
