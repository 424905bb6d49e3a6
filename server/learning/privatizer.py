"""The filter of a run: where it comes from, what nodes are told of it, where its weights lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedlens.client.messages import FilterSettings, Vector
from fedlens.server.config.moments import MomentsConfig
from fedlens.server.config.privatizer import FilterConfig
from fedlens.server.config.tasks import PrivatizerTaskConfig
from fedlens.server.config.tree import Config
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import FilterTask, NothingLearned, ServerTask

KEPT = "filter/mean"
"""Where a run's state has a filter that no task of the run trains."""


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
        highest_frequency=int(getattr(filter_, "highest_frequency", 0)),
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
        known = list(tasks.values())
        places = [place for place, task in enumerate(known) if isinstance(task, FilterTask)]
        self._task = known[places[0]] if places else None
        self._before = known[: places[0] + 1] if places else []
        """The tasks that see images as they are: those up to the one that makes the filter."""

    def check(self, task: ServerTask) -> None:
        """Refuse a task that lacks what it builds on, or whose filter learned nothing.

        Raises:
            NothingLearned: it is so.
        """
        if not isinstance(self._task, FilterTask):
            return
        if task is self._task and self._task.lacking:
            raise NothingLearned(
                f"the filter's task lacks {self._task.lacking}: its rounds were lost; start a new "
                "run"
            )
        if not self._precedes(task) and not self._task.ready:
            raise NothingLearned(
                "the filter learned from no release, so later tasks would see images as they are: "
                "its rounds were lost; start a new run"
            )

    def _precedes(self, task: ServerTask) -> bool:
        return any(task is other for other in self._before)

    def settings(self, task: ServerTask) -> FilterSettings | None:
        """What nodes are told in a round of ``task``; None until the run has its filter."""
        return None if self._precedes(task) else self._settings

    def weights(self, task: ServerTask) -> dict[str, Vector]:
        """The filter as it travels in a round of ``task``, as ``filter``; empty without one."""
        if self._pretrained is not None:
            return {"filter": self._pretrained}
        if not isinstance(self._task, FilterTask) or self._precedes(task):
            return {}
        return {"filter": self._task.filter_weights()}


def filter_task_of(config: Config) -> str | None:
    """The name of the task whose releases make the run's filter; None where none does."""
    makes = (PrivatizerTaskConfig, MomentsConfig)
    found = [name for name, task in config.planned.items() if isinstance(task, makes)]
    return found[0] if found else None


def kept_filter_weights(config: Config, arrays: Arrays) -> Vector | None:
    """A run's filter from its state, float32 [n]; None where it has none (yet)."""
    name = filter_task_of(config)
    kept = arrays.get(KEPT if name is None else f"tasks/{name}/mean")
    return None if kept is None else kept.astype(np.float32)
