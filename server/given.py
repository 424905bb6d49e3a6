"""A filter that another run made: nodes of this one look through it from the first round on.

The filter is public by now, a result of the other run, so using it costs nothing here. What its
training cost is in that run's ledger; where both runs are about the same people they lose both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from client.records import Vector
from models.shapes import ImageShape
from server.config import Config, ConfigError
from server.directory import RunDirectory, RunDirectoryError, Snapshot
from server.tensors import Arrays

KEPT = "privatizer/mean"
"""Where a run's state has its filter."""
_SAME = ("secret", "network", "width")


class GivenFilter:
    """The filter of the run that ``privatizer.filter`` names; part of this run's own state."""

    size = 0
    """It learns nothing, so it has no updates."""

    def __init__(self, config: Config, shape: ImageShape) -> None:
        self._config, self._shape = config, shape
        self._vector: Vector | None = None

    @property
    def ready(self) -> bool:
        """Whether it is here: fetched, or restored with a state."""
        return self._vector is not None

    def fetch(self) -> None:
        """Take the filter out of the other run.

        Raises:
            ConfigError: there is none of this kind.
        """
        self._vector = filter_of(self._config, self._shape)

    def weights(self) -> dict[str, Vector]:
        """No node trains it."""
        return {}

    def filter_weights(self) -> Vector:
        """As it travels in every request, float32 [n].

        Raises:
            ValueError: it is not here yet.
        """
        if self._vector is None:
            raise ValueError("the given filter was not fetched")
        return self._vector

    def figures(self) -> dict[str, float]:
        """None: nothing is learned."""
        return {}

    def absorb(self, release: NDArray[np.float64]) -> None:
        """Refuse: there are no releases of a part that a run does not have.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"a given filter learns nothing, but got a release of {release.shape}")

    def state(self) -> Arrays:
        """All that `restore` needs, so that the other run may go."""
        return {} if self._vector is None else {"mean": self._vector}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._vector = state["mean"].astype(np.float32) if "mean" in state else None


def check_filter(config: Config) -> None:
    """Refuse a new run whose given filter cannot be used, as far as is known before nodes answer.

    Raises:
        ConfigError: as `filter_of`.
    """
    if config.privatizer.given:
        _found(config)


def filter_of(config: Config, shape: ImageShape) -> Vector:
    """The filter's weights, float32 [n], of the run that a configuration names.

    Raises:
        ConfigError: there is no such run, it has no filter, its filter is of other images or
            another kind than the configuration says, or it was trained without a guarantee where
            this run has one.
    """
    found = _found(config)
    if tuple(found.facts["shape"]) != tuple(shape):
        raise _refused(
            config.privatizer.filter, f"its filter is of images {found.facts['shape']}, not {shape}"
        )
    return found.arrays[KEPT].astype(np.float32)


def _found(config: Config) -> Snapshot:
    named = config.privatizer.filter
    try:
        directory = RunDirectory.open(Path(named).expanduser())
        theirs, snapshot = directory.config(), directory.load_state()
    except RunDirectoryError as error:
        raise _refused(named, str(error)) from None
    if snapshot is None or KEPT not in snapshot.arrays:
        raise _refused(named, "that run has no filter, or is not done yet")
    _check_alike(config, theirs)
    if _private(config) and not _private(theirs):
        raise _refused(
            named,
            "it was trained without noise or with repeatable noise, so it may tell of single "
            "people, and this run promises that nothing does; train it again with noise",
        )
    return snapshot


def _check_alike(config: Config, theirs: Config) -> None:
    """The network is built from this run's settings, on nodes that do not know the other run."""
    ours, other = config.privatizer, theirs.privatizer
    for name in _SAME:
        if getattr(ours, name) != getattr(other, name):
            raise ConfigError(
                f"privatizer.{name} = {getattr(ours, name)!r} does not fit privatizer.filter = "
                f"{ours.filter!r}, whose filter has {getattr(other, name)!r}: set that"
            )
    if (ours.consenting > 0) != (other.consenting > 0):
        said = "is told" if other.consenting > 0 else "is not told"
        raise ConfigError(
            f"privatizer.consenting = {ours.consenting!r} does not fit privatizer.filter = "
            f"{ours.filter!r}, whose filter {said} who consents: give "
            + ("a share above 0" if other.consenting > 0 else "0")
        )


def _private(config: Config) -> bool:
    return config.noised and config.privacy.fixed_seed < 0


def _refused(named: str, why: str) -> ConfigError:
    return ConfigError(f"privatizer.filter = {named!r} cannot be used: {why}")
