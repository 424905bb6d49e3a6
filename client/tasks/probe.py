"""A probe on a node: one bounded number a user, which the server sees as a noised sum alone.

Every user is computed on the same number of records, absent ones among them, so that neither time
nor memory tells what anybody holds. A user's number lies in [0, 1] whatever the probe gives, and
clipping holds it there once more: one user moves the sum by 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import PLACES, ProbeSettings
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import padded
from fedlens.models import devices
from fedlens.models.annotators import Annotator
from fedlens.models.probes.asking import AskedProbe, parse_probe
from fedlens.models.probes.protocol import ProbedRecords
from fedlens.models.weights import load_vector


def asked_network(users: LocalUsers, request: TrainRequest) -> Annotator | None:
    """The network that travels with a question, if any."""
    settings = ProbeSettings.model_validate(request.settings)
    if "annotator" not in request.weights:
        return None
    annotator = Annotator(users.shape, users.classes, settings.components, settings.features)
    load_vector(annotator, request.weights["annotator"])
    return annotator.to(devices.best_device())


class ProbeLocalTask(ClientTask):
    """Updates are one number a user, spread evenly over `PLACES`: L2 norm 1 at most."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = ProbeSettings.model_validate(request.settings)
        self._users, self._records = users, request.records_per_user
        self._question: AskedProbe = parse_probe(settings.probe)
        self._question.check(users.shape, users.classes)
        self._annotator = asked_network(users, request)

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's number over √64 in every place, [users, 64]; 0 of one without records."""
        held = padded(cohort, self._records, self._users)
        found = torch.zeros(len(held.labels), PLACES)
        for user in range(len(found)):
            own = ProbedRecords(
                held.images[user],
                held.labels[user],
                held.present[user],
                self._users.classes,
                self._annotator,
            )
            number = self._question.probe.of_user(own, self._question.argument)
            found[user] = number / math.sqrt(PLACES)
        return found
