"""The filter of a run: where it comes from, what nodes are told of it, where its weights lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedlens.client.messages import FilterSettings, Vector
from fedlens.server.config import needs
from fedlens.server.config.tree import Config
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import NothingLearned, ServerTask

KEPT = "filter/mean"
"""Where a run's state has a filter that no task of the run trains."""


_OF_OTHER_NETWORKS = {"output_noise_std": 0.0, "capacity": 0.0, "highest_frequency": 0}
"""What a filter's settings lack where its network has no such thing."""


def told_to_nodes(config: Config) -> FilterSettings | None:
    """What nodes need to know to run the filter, or to give pairs; None where nothing is hidden."""
    filter_ = config.privatizer
    if not filter_.active:
        return None
    known = {**_OF_OTHER_NETWORKS, **filter_.model_dump(), "pairs": filter_.pairs}
    return FilterSettings(**{name: known[name] for name in FilterSettings.model_fields})


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
        if config.privatizer.asked_run and pretrained is None:
            raise ValueError("without the pretrained filter nodes would show images as they are")
        self._settings, self._pretrained = told_to_nodes(config), pretrained
        name, names = filter_task_of(config), list(tasks)
        self._task = None if name is None else tasks[name]
        before = [] if name is None else names[: names.index(name) + 1]
        self._before = [tasks[one] for one in before]
        """The tasks that see images as they are: those up to the one that makes the filter."""

    def check(self, task: ServerTask) -> None:
        """Refuse a task that lacks what it builds on, or whose filter learned nothing.

        Raises:
            NothingLearned: it is so.
        """
        if self._task is None:
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
        if self._task is None or self._precedes(task):
            return {}
        return {"filter": self._task.filter_weights()}


def filter_task_of(config: Config) -> str | None:
    """The name of the task whose releases make the run's filter; None where none does."""
    found = config.providers(needs.PRIVATIZER)
    return found[0] if found else None


def kept_filter_weights(config: Config, arrays: Arrays) -> Vector | None:
    """A run's filter from its state, float32 [n]; None where it has none (yet)."""
    name = filter_task_of(config)
    kept = arrays.get(KEPT if name is None else f"tasks/{name}/mean")
    return None if kept is None else kept.astype(np.float32)
