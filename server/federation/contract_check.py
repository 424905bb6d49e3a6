"""What a run must be, to be the one that the owners of nodes' data agreed to.

The contract binds the nodes, which refuse what it does not allow. The server looks at it before any
node is asked, so that an operator reads in one line what nodes would not say.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fedlens.server.config.section import require
from fedlens.server.config.tree import Config

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
    for name, task in config.planned.items():
        kinds, z = contract.tasks, contract.least_noise_multiplier
        fix = f"{agreed} {', '.join(kinds)} alone"
        require(not kinds or task.kind in kinds, f"tasks.{name}.kind", task.kind, fix)
        noise, rate = task.noise_multiplier, task.sampling_rate
        require(noise >= z, f"tasks.{name}.noise_multiplier", noise, f"{agreed} {z} at least")
        most = contract.largest_sampling_rate
        require(rate <= most, f"tasks.{name}.sampling_rate", rate, f"{agreed} {most} at most")


def check_agreed(described: Sequence[Description], config: Config) -> None:
    """Refuse nodes whose data were not all prepared under the run's contract.

    Raises:
        EnrolmentError: naming what differs and the fix.
        ContractError, ConfigError: as `check_run`.
    """
    check_run(config)
    contract = run_contract(config)
    found = sorted({(d.federation, d.contract) for d in described})
    if len(found) != 1:
        said = ", ".join(f"{name!r} ({digest[:8] or 'no contract'})" for name, digest in found)
        raise EnrolmentError(
            f"nodes were prepared under different contracts: {said}; all owners need the same "
            "federation.toml, and prepare their data under it"
        )
    name, digest = found[0]
    if contract is None and digest:
        raise EnrolmentError(
            f"the nodes hold data of the federation {name!r}, data.name says "
            f"{config.data.name!r}: set data.name={PREFIX}:/absolute/path/{CONTRACT}"
        )
    if contract is not None and digest != contract.digest():
        raise EnrolmentError(
            f"the nodes' data were prepared under {f'another contract of {name!r}' if name else ''}"
            f"{'' if name else 'no contract'}, not under that of data.name = {config.data.name!r}; "
            "agree on one federation.toml"
        )


def data_name(described: Sequence[Description], config: Config) -> str:
    """What a run's data are called in its store: never a simulation's name for nodes' own."""
    contract = run_contract(config)
    if contract is not None:
        return f"{PREFIX}:{contract.name}"
    return OWN_DATA if any(d.own for d in described) else config.data.name
