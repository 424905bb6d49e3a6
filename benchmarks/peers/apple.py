"""A round of Apple's pfl (pfl-research, Apache 2.0): federated averaging, clip and Gaussian noise.

It asks for an older dp-accounting than our own cross-checks do, so it is installed beside, into
build/peers, by `make bench`; without it its rows say "not measured".
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.work import (
    BATCH,
    CLIP,
    LIMIT,
    NOISE,
    RATE,
    RECORDS,
    STEPS,
    Size,
    critic_loss,
    people,
)
from fedlens.models.limits import clamp_weights, weight_limits


def is_there() -> bool:
    """Whether pfl can be imported."""
    return find_spec("pfl") is not None


class AppleCritic(nn.Module):
    """The critic with the loss under the name that pfl calls."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.critic = size.critic()
        self._limits = weight_limits(self.critic, LIMIT)
        self._source = np.random.default_rng(1)

    def loss(self, images: Tensor, labels: Tensor, eval: bool = False) -> Tensor:  # noqa: A002
        """Of a batch; the weights' limits come before it, as often as after each step."""
        clamp_weights(self.critic, self._limits)
        return critic_loss(self.critic, images, labels, self._source)

    def metrics(self, images: Tensor, labels: Tensor, eval: bool = False) -> dict[str, Any]:  # noqa: A002
        """None are asked for."""
        return {}


def apple_round(size: Size, cohort: int) -> Callable[[], object]:
    """One central iteration of pfl's own algorithm over its own simulation, in this process."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism

    users, network = people(1000), AppleCritic(size)

    def records(user: int) -> Any:
        data = users.user(int(user))
        return Dataset([data.images, data.labels], user_id=str(user))

    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    data = FederatedDataset(records, get_user_sampler("random", list(range(len(users)))))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP, NOISE))
    backend = SimulatedBackend(data, data, postprocessors=[noise])
    algorithm = NNAlgorithmParams(
        central_num_iterations=1,
        evaluation_frequency=10**6,
        train_cohort_size=cohort,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_batch_size=BATCH,
        local_num_epochs=STEPS * BATCH // RECORDS,
        local_learning_rate=RATE,
    )
    asyncio.set_event_loop(asyncio.new_event_loop())  # pfl takes its thread's

    def quietly() -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # pfl prints its metrics of each round
            FederatedAveraging().run(algorithm, backend, model, local, None, callbacks=[])

    return quietly
