"""The label model by which devices of a run name their records, and what it cost.

It learned from samples of an earlier run, which are releases about that run's users. Where they are
this run's too, they lose what both runs spent, so its file says what that run released, and this
run pays for it as `fedlens.server.ledger.prior_runs` says. Which of a user's records has
which name is found on the device and told to nobody. A run keeps the cost as it first took it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedlens.accountant.events import EventError
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import HEADER, PriorReleases
from fedlens.accountant.wording import shown
from fedlens.models.label_models import LabelModel, LabelModelError, read_label_model
from fedlens.models.shapes import ImageShape
from fedlens.server.config.schedule import check_affordable
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.ledger.plan import noise_source, planned
from fedlens.server.ledger.population import check_room
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory, RunDirectoryError

FILE = "label-model.json"
UNTOLD = "it does not say what the run behind it cost; write it anew with `fedlens student --out`"


@dataclass(frozen=True)
class NamingCost:
    """What devices name records by, and what its training cost.

    Attributes:
        digest: SHA-256 (hex) of the label model's file.
        prior: what the run released that its samples are of, and that run's plan.
        epsilon: DP ε that its ledger came to; infinite where it protects no user.
        delta: at this δ.
    """

    digest: str
    prior: PriorReleases
    epsilon: float
    delta: float

    @property
    def cost(self) -> str:
        """In words, for people who read what a run cost."""
        return (
            "Devices named their records by a label model that learned from samples of run "
            f"{self.prior.run_id}, which cost its users DP ε = {shown(self.epsilon)} at δ = "
            f"{self.delta:g} alone; the figures include it, as if all users were in both runs."
        )


def origin_of(directory: RunDirectory) -> dict[str, Any]:
    """What a label model's file says of the run whose samples it learned from.

    Raises:
        LedgerError: the run's ledger cannot be trusted.
    """
    config, ledger = directory.config(), Ledger.read(directory.ledger)
    spent = spending_of(config, directory)
    prior = PriorReleases.of(ledger, other_people=False, plan=planned(config).schedule)
    return {
        "run_id": prior.run_id,
        "private": _private(config),
        "unit": config.privacy.unit,
        "epsilon": repr(spent.dp_epsilon),
        "delta": repr(spent.delta_dp),
        # the ledger of a run that builds on another does not say what that one released
        "prior": None if HEADER in ledger.header else prior.to_json(),
    }


def naming_cost(config: Config, directory: RunDirectory) -> NamingCost | None:
    """What the run's label model cost, kept in its directory from then on; None without one.

    Raises:
        ConfigError: as `check_label_model`; or the file is not the one that the run began with.
        PopulationError: the population has too little left to pay what it cost and this run.
        RunDirectoryError: what was kept was damaged.
    """
    if not config.data.label_model:
        return None
    kept = kept_naming(directory)
    if kept is None:
        kept = _taken(config)
        facts = {
            "digest": kept.digest,
            "prior": kept.prior.to_json(),
            "epsilon": repr(kept.epsilon),
            "delta": repr(kept.delta),
        }
        directory.save(FILE, json.dumps(facts).encode())
    elif _read(config).digest != kept.digest:
        raise _refused(config, "it is not the file that the run began with: bring that back")
    return kept


def check_label_model(config: Config) -> None:
    """Refuse a new run whose label model cannot be used, before nodes are asked anything.

    Raises:
        ConfigError: there is no such file, it learned from samples without a guarantee where this
            run has one, or of a run that builds on another, or the budget does not cover its cost.
        PopulationError: as `check_room`.
    """
    if config.data.label_model:
        _taken(config)


def check_names(config: Config, shape: ImageShape, classes: int) -> None:
    """Refuse nodes whose records are not as the label model names them.

    Raises:
        ConfigError: they have other images, or another number of classes.
    """
    if not config.data.label_model:
        return
    model = _read(config)
    if (tuple(model.shape), len(model.class_names)) != (tuple(shape), classes):
        raise _refused(
            config,
            f"it gives {len(model.class_names)} names to images {tuple(model.shape)}, and the "
            f"nodes have {classes} classes of {tuple(shape)}",
        )


def naming_releases(config: Config) -> PriorReleases | None:
    """What a new run's figures will include of the run behind its label model; None without one.

    Raises:
        ConfigError: as `check_label_model`.
    """
    return _prior(config, _read(config)) if config.data.label_model else None


def kept_naming(directory: RunDirectory) -> NamingCost | None:
    """What a run keeps of its label model; None where it has none, or not yet.

    Raises:
        RunDirectoryError: what was kept was damaged.
    """
    path = directory.path / FILE
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        prior = PriorReleases.from_json(facts["prior"])
        figures = float(facts["epsilon"]), float(facts["delta"])
        return NamingCost(str(facts["digest"]), prior, *figures)
    except (OSError, KeyError, TypeError, ValueError):
        raise RunDirectoryError(f"{path} is damaged; restore it from a backup") from None


def _taken(config: Config) -> NamingCost:
    model = _read(config)
    prior, origin = _prior(config, model), _Origin.of(config, model)
    if _private(config) and not origin.private:
        raise _refused(
            config,
            "it learned from samples of a run without noise or with repeatable noise, so it may "
            "tell of single people, and this run promises that nothing does; train it again with "
            "noise",
        )
    if origin.unit != config.privacy.unit:
        raise _refused(config, f"its run protects a {origin.unit}, and this run a user")
    check_affordable(config, prior.in_bulk)
    check_room(config, prior)
    return NamingCost(model.digest, prior, origin.epsilon, origin.delta)


class _Origin(NamedTuple):
    """What a label model's file says of the run whose samples it learned from."""

    private: bool
    unit: str
    epsilon: float
    delta: float

    @classmethod
    def of(cls, config: Config, model: LabelModel) -> _Origin:
        facts = model.origin
        try:
            figures = float(facts["epsilon"]), float(facts["delta"])
            return cls(facts["private"] is True, str(facts["unit"]), *figures)
        except (KeyError, TypeError, ValueError):
            raise _refused(config, UNTOLD) from None


def _prior(config: Config, model: LabelModel) -> PriorReleases:
    found = model.origin.get("prior")
    if found is None:
        raise _refused(
            config,
            "it learned from samples of a run that builds on another one, and that run's ledger "
            "does not say what the other cost: train one on samples of the first run",
        )
    try:
        prior = PriorReleases.from_json(found)
    except (EventError, AttributeError, KeyError, TypeError, ValueError):
        raise _refused(config, UNTOLD) from None
    if prior.other_people or not prior.releases:
        raise _refused(config, UNTOLD)
    return prior


def _read(config: Config) -> LabelModel:
    if not Path(config.data.label_model).is_absolute():
        raise _refused(config, "give the absolute path of the label model's file")
    try:
        return read_label_model(config.data.label_model)
    except LabelModelError as error:
        raise _refused(config, str(error)) from None


def _private(config: Config) -> bool:
    return config.noised and noise_source(config) == "os-entropy"


def _refused(config: Config, why: str) -> ConfigError:
    return ConfigError(f"data.labels = {config.data.labels!r} cannot be used: {why}")
