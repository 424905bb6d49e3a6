"""A filter that another run made: nodes of this one look through it from the first round on.

The filter is public by now, a result of the other run, so using it costs nothing here. What its
training cost is in that run's ledger; where both runs are about the same people they lose both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from accountant.ledger.ledger import Ledger
from client.messages import Vector
from models.shapes import ImageShape, ShapeError
from server.config.privatizer import ROUNDS
from server.config.tree import Config, ConfigError
from server.run_directory import RunDirectory, RunDirectoryError, Snapshot
from server.run_ledger import spending_of
from server.sampler import restored_filter

KEPT = "privatizer/mean"
"""Where a run's state has its filter."""
_APPLIED = "privatizer/applied"
_SAME = ("sensitive_attribute", "network", "width", "output_noise_std")


@dataclass(frozen=True, eq=False)
class PretrainedFilter:
    """A filter with what its training cost.

    Attributes:
        vector: the filter's weights as they travel in every request, float32 [n].
        run_id: of the run that trained it.
        epsilon: DP ε that its ledger came to; infinite where it protects nobody.
        delta: at this δ.
    """

    vector: Vector
    run_id: str
    epsilon: float
    delta: float

    @property
    def cost(self) -> str:
        """In words, for people who read what a run cost."""
        return (
            f"Records went through the filter of run {self.run_id}, whose training cost DP "
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} besides: whoever is in both runs "
            "loses both."
        )


def check_filter(config: Config) -> None:
    """Refuse a new run whose given filter cannot be used, as far as is known before nodes answer.

    Raises:
        ConfigError: as `given_filter`.
    """
    if config.privatizer.given:
        _found(config)


def pretrained_filter(
    config: Config, shape: ImageShape, directory: RunDirectory
) -> PretrainedFilter | None:
    """The filter that a run was given, kept in its own directory from then on; None without one.

    What is kept is durable before this returns, and what the other run does later changes nothing.

    Args:
        config: the run's.
        shape: of the images of its nodes.
        directory: the run's.

    Raises:
        ConfigError: there is no such run, it is not done with its filter or did not train it, the
            filter is of other images or another kind than the configuration says, or it was trained
            without a guarantee where this run has one.
        RunDirectoryError: what was kept was damaged.
    """
    if not config.privatizer.given:
        return None
    kept = kept_pretrained(directory)
    if kept is None:
        kept = _taken(config, shape)
        facts = {"run_id": kept.run_id, "epsilon": repr(kept.epsilon), "delta": repr(kept.delta)}
        directory.save_filter(kept.vector, facts)
    return kept


def kept_pretrained(directory: RunDirectory) -> PretrainedFilter | None:
    """The filter that a run was given, as it keeps it; None where none was, or not yet.

    Raises:
        RunDirectoryError: what was kept was damaged.
    """
    kept = directory.load_filter()
    if kept is None:
        return None
    vector, facts = kept
    return PretrainedFilter(vector, facts["run_id"], float(facts["epsilon"]), float(facts["delta"]))


def with_cost(statement: str, directory: RunDirectory) -> str:
    """What a run promises, with what its given filter cost besides, where it was given one."""
    given = kept_pretrained(directory)
    return statement if given is None else f"{statement} {given.cost}"


def _taken(config: Config, shape: ImageShape) -> PretrainedFilter:
    """The other run's filter, tried on a network, and what it cost."""
    named = config.privatizer.filter
    directory, snapshot = _found(config)
    if tuple(snapshot.facts["shape"]) != tuple(shape):
        raise _refused(named, f"its filter is of images {snapshot.facts['shape']}, not {shape}")
    vector = snapshot.arrays[KEPT].astype(np.float32)
    try:
        restored_filter(config, shape, vector)
    except (ValueError, ShapeError) as error:
        raise _refused(named, f"it is of another version: {error}; train it again") from None
    if not np.isfinite(vector).all():
        raise _refused(named, "its weights are not finite; train it again")
    spent = spending_of(directory.config(), directory)
    run_id = str(Ledger.read(directory.ledger).header["run_id"])
    return PretrainedFilter(vector, run_id, spent.dp_epsilon, spent.delta_dp)


def _found(config: Config) -> tuple[RunDirectory, Snapshot]:
    named = config.privatizer.filter
    if not Path(named).is_absolute():
        raise _refused(named, "give the absolute path of that run's folder")
    try:
        directory = RunDirectory.open(Path(named))
        theirs, snapshot = directory.config(), directory.load_state()
    except RunDirectoryError as error:
        raise _refused(named, str(error)) from None
    except OSError as error:
        raise _refused(named, f"it cannot be read: {error.strerror}") from None
    if theirs.privatizer.given:
        raise _refused(
            named,
            "that run was given its filter too, and its ledger does not say what that cost: name "
            f"the one that trained it, {theirs.privatizer.filter}",
        )
    if snapshot is None or not _trained(theirs, snapshot):
        raise _refused(named, "that run has no filter, or is not done with it yet")
    _check_alike(config, theirs)
    if _private(config) and not _private(theirs):
        raise _refused(
            named,
            "it was trained without noise or with repeatable noise, so it may tell of single "
            "people, and this run promises that nothing does; train it again with noise",
        )
    return directory, snapshot


def _trained(theirs: Config, snapshot: Snapshot) -> bool:
    """Whether the filter is there, and learned from what it was to learn from."""
    privatizer = theirs.privatizer
    if KEPT not in snapshot.arrays:
        return False
    if privatizer.method not in ROUNDS:
        return True
    return snapshot.round >= privatizer.rounds and int(snapshot.arrays[_APPLIED]) > privatizer.lead


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
