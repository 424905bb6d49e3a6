"""The filter of a run: where it comes from, what nodes are told of it, where its weights lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from client.messages import FilterSettings, Vector
from foundation.errors import FedlensError
from server.config.privatizer import FederatedPrivatizer, FilterConfig
from server.config.tree import Config
from server.tasks.privatizer import PrivatizerTask
from server.tasks.protocol import ServerTask
from server.tensors import Arrays

KEPT = "filter/mean"
"""Where a run's state has a filter that no task of the run trains."""


class NothingLearned(FedlensError, RuntimeError):
    """A task cannot begin, for what it builds on has learned nothing."""


def told_to_nodes(config: Config) -> FilterSettings | None:
    """What nodes need to know to run the filter, or to give pairs; None where nothing is hidden."""
    filter_ = config.privatizer
    if not isinstance(filter_, FilterConfig):
        return None
    return FilterSettings(
        network=filter_.network,
        width=filter_.width,
        consenting=filter_.consenting,
        output_noise_std=float(getattr(filter_, "output_noise_std", 0.0)),
        capacity=float(getattr(filter_, "capacity", 0.0)),
        sensitive_attribute=filter_.sensitive_attribute,
        pairs=filter_.pairs,
    )


class RunFilter:
    """The filter that nodes look through in a task, where the run has one already."""

    def __init__(
        self, config: Config, tasks: Mapping[str, ServerTask], pretrained: Vector | None
    ) -> None:
        """Look for the filter among the tasks.

        Args:
            config: the run's.
            tasks: by name.
            pretrained: another run's filter, float32 [n].

        Raises:
            ValueError: the run is to have a pretrained filter and has none.
        """
        if config.privatizer.kind == "pretrained" and pretrained is None:
            raise ValueError("without the pretrained filter nodes would show images as they are")
        self._settings, self._pretrained = told_to_nodes(config), pretrained
        trained = [task for task in tasks.values() if isinstance(task, PrivatizerTask)]
        self._task = trained[0] if trained else None

    def check(self, task: ServerTask) -> None:
        """Refuse a task that would see images through a filter that learned nothing.

        Raises:
            NothingLearned: the filter's task learned from no release.
        """
        if self._task is not None and self._task is not task and not self._task.ready:
            raise NothingLearned(
                "the filter learned from no release, so later tasks would see images as they are: "
                "its rounds were lost; start a new run"
            )

    def settings(self, task: ServerTask) -> FilterSettings | None:
        """What nodes are told in a round of ``task``; None while it trains the filter itself."""
        return None if task is self._task else self._settings

    def weights(self, task: ServerTask) -> dict[str, Vector]:
        """The filter as it travels in a round of ``task``, as ``filter``; empty without one."""
        if self._pretrained is not None:
            return {"filter": self._pretrained}
        if self._task is None or self._task is task:
            return {}
        return {"filter": self._task.filter_weights()}


def kept_filter_weights(config: Config, arrays: Arrays) -> Vector | None:
    """A run's filter from its state, float32 [n]; None where it has none (yet)."""
    federated = isinstance(config.privatizer, FederatedPrivatizer)
    kept = arrays.get(f"tasks/{config.schedule[0]}/mean" if federated else KEPT)
    return None if kept is None else kept.astype(np.float32)
