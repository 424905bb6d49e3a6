"""What a run must be, to be the one that the owners of nodes' data agreed to.

The contract binds the nodes, which refuse what it does not allow. The server looks at it before any
node is asked, so that an operator reads in one line what nodes would not say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlens.accountant.ledger.terms import fedlens_home
from fedlens.client.contract import (
    CONTRACT,
    PREFIX,
    ContractError,
    FederationContract,
    read_contract,
)
from fedlens.client.messages import Description
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.unlabelled import NONE
from fedlens.models.label_models import LabelModelError, read_label_model
from fedlens.models.shapes import ImageShape
from fedlens.server.config.section import require
from fedlens.server.config.tree import Config, ConfigError

OWN_DATA = "nodes' own data"


class EnrolmentError(FedlensError, RuntimeError):
    """The nodes that answered are not the federation that the run declares."""


def run_contract(config: Config) -> FederationContract | None:
    """The contract that a run's ``data.name`` names; None where it names none.

    Without a path it is ``federation.toml`` in ``$FEDLENS_HOME``, a SuperLink's own folder: a run
    that goes by it goes on wherever that folder is moved.

    Raises:
        ContractError: it cannot be read.
    """
    kind, colon, path = config.data.name.partition(":")
    if kind != PREFIX:
        return None
    if not colon:
        return read_contract(fedlens_home() / CONTRACT)
    if not Path(path).is_absolute():
        raise ContractError(
            f"data.name = {config.data.name!r}: write {PREFIX}:/absolute/path/{CONTRACT}, or "
            f"{PREFIX} for the {CONTRACT} in the SuperLink's folder"
        )
    return read_contract(Path(path))


def check_run(config: Config) -> None:
    """Refuse a run that its own contract does not allow, before any node is asked.

    Raises:
        ConfigError: naming the setting and what is agreed.
        ContractError: the contract cannot be read.
    """
    contract = run_contract(config)
    if contract is None:
        return
    agreed = f"the contract of {contract.name} says"
    unit = config.privacy.unit
    require(unit == contract.unit, "privacy.unit", unit, f"{agreed} {contract.unit!r}")
    _check_labels(config, contract)
    for name, task in config.planned.items():
        kinds, z = contract.tasks, contract.least_noise_multiplier
        fix = f"{agreed} {', '.join(kinds)} alone"
        require(not kinds or task.kind in kinds, f"tasks.{name}.kind", task.kind, fix)
        noise, rate = task.noise_multiplier, task.sampling_rate
        require(noise >= z, f"tasks.{name}.noise_multiplier", noise, f"{agreed} {z} at least")
        most = contract.largest_sampling_rate
        require(rate <= most, f"tasks.{name}.sampling_rate", rate, f"{agreed} {most} at most")


def _check_labels(config: Config, contract: FederationContract) -> None:
    """Hold what the run says of labels against the contract."""
    labels, agreed = config.data.labels, f"the contract of {contract.name} says"
    given = labels
    if path := config.data.label_model:
        try:
            given = f"{labels.removesuffix(path)}{read_label_model(path).digest}"
        except LabelModelError as error:
            raise ConfigError(f"data.labels = {labels!r} cannot be used: {error}") from None
    require(given == contract.labels, "data.labels", labels, f"{agreed} {contract.labels!r}")
    sure, least = config.data.least_confidence, contract.least_confidence
    require(sure == least, "data.least_confidence", sure, f"{agreed} {least:g}")


@dataclass(frozen=True)
class Schema:
    """The form of the data that all nodes of a run have."""

    shape: ImageShape
    classes: int
    sensitive_classes: int = 0
    """Of the attribute that a privatizer hides; 0 where no node need know it."""
    contract: str = ""
    """SHA-256 of the contract that the data were prepared under; empty for none."""


def agree_schema(described: Sequence[Description], config: Config) -> Schema:
    """The schema of the run's contract; where it names none, the one that most nodes have.

    Raises:
        EnrolmentError: no schema is that of most nodes, or there is nothing to hide.
        ContractError, ConfigError: as `check_run`.
    """
    check_run(config)
    contract, hidden = run_contract(config), config.privatizer.hidden_attribute
    if contract is not None:
        values = contract.sensitive.values if hidden and contract.sensitive else ()
        return Schema(contract.shape, len(contract.classes), len(values), contract.digest())
    voters = [d for d in described if not hidden or d.sensitive_attribute == hidden] or described
    said = Counter(
        Schema(d.shape, d.classes, d.sensitive_classes if hidden else 0) for d in voters
    ).most_common()
    if len(said) > 1 and said[0][1] == said[1][1]:
        forms = [(s.shape, s.classes, s.sensitive_classes) for s, _ in said]
        raise EnrolmentError(
            f"nodes disagree on the data's schema (shape, classes, sensitive classes): {forms}; "
            f"prepare the data under one federation.toml and name it: data.name={PREFIX}:/PATH"
        )
    schema = said[0][0]
    if config.data.labels == NONE and schema.classes > 1:
        raise EnrolmentError(
            f"data.labels = 'none', and the nodes' records have {schema.classes} classes: prepare "
            'them under a federation.toml with labels = "none" and name it: '
            f"data.name={PREFIX}:/PATH"
        )
    if hidden and schema.sensitive_classes == 1:
        raise EnrolmentError(f"{hidden!r} has 1 classes, so there is nothing to hide")
    return schema


def misfit(told: Description, schema: Schema, config: Config) -> str | None:
    """Why a node cannot take part in a run of a schema, or None; public facts alone."""
    if told.contract != schema.contract:
        return _of_another_contract(told, schema, config)
    if (told.shape, told.classes) != (schema.shape, schema.classes):
        return (
            f"its images and classes are {told.shape} and {told.classes}, the run's are "
            f"{schema.shape} and {schema.classes}"
        )
    if told.slice != config.data.slice:
        return (
            f"it answers for other users than data.slice = {config.data.slice!r}: all nodes must "
            "run this version and declare that attribute"
        )
    if config.split.active and not told.splits:
        return (
            f"split.side = {config.split.side!r}, and it knows of no private splits or forbids "
            "them (forbid-splits): ask everyone, or its operator"
        )
    hidden = config.privatizer.hidden_attribute
    if hidden and told.sensitive_attribute != hidden:
        return (
            f"it does not know privatizer.sensitive_attribute = {hidden!r} of its records: add it "
            "to its data, or name another"
        )
    if hidden and told.sensitive_classes != schema.sensitive_classes:
        return f"{hidden!r} has {told.sensitive_classes} classes there"
    return None


def _of_another_contract(told: Description, schema: Schema, config: Config) -> str:
    if not schema.contract:
        return (
            f"it holds data of the federation {told.federation!r}, data.name says "
            f"{config.data.name!r}: set data.name={PREFIX}:/absolute/path/{CONTRACT}"
        )
    under = f"another contract of {told.federation!r}" if told.contract else "no contract"
    return (
        f"its data were prepared under {under}, not under that of data.name = "
        f"{config.data.name!r}: agree on one federation.toml"
    )


def class_names_of(config: Config) -> tuple[str, ...]:
    """What the run's contract calls the classes; nothing without one, or without labels."""
    contract = run_contract(config)
    return () if contract is None or contract.unlabelled else contract.classes


def data_name(described: Sequence[Description], config: Config) -> str:
    """What a run's data are called in its store: never a simulation's name for nodes' own."""
    contract = run_contract(config)
    if contract is not None:
        return f"{PREFIX}:{contract.name}"
    return OWN_DATA if any(d.own for d in described) else config.data.name
