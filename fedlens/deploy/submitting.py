"""Starting a run over the federation, as an operator, and following it to its end."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedlens.deploy.asking import address_of, ask, read_token
from fedlens.deploy.bundles import COMPONENTS
from fedlens.deploy.flower_runs import CONNECTION, FlowerRuns, require_completed, say_begun
from fedlens.deploy.layout import DeployError, OperatorSettings, read_role
from fedlens.deploy.names import OWN_DATA, STATUS
from fedlens.foundation.files import write_durably
from fedlens.foundation.offline import SILENT
from fedlens.simulations.transports.flower_app import with_programs, write_app, write_programs

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config

ACCOUNT = "flower.account-auth.{place}.{what}"


def submit(folder: Path, config: Config, *, name: str = "", resume: bool = False) -> dict[str, Any]:
    """Run ``config`` over the federation; its log goes to standard output as it comes.

    Only settings travel: no code, no path of this machine, no secret.

    Args:
        folder: the operator's.
        config: what to run.
        name: folder of the run, below the SuperLink's ``runs``; one of its own by default. A run
            that is there already goes on.
        resume: say that the run's folder, which was moved or restored, is the only one.

    Returns:
        What Flower says of the run: its number, status and times; ``name`` is its folder's.

    Raises:
        DeployError: the folder cannot be used.
        RunFailed: it failed, could not be started, or is no longer known; says how to go on.
    """
    settings: OperatorSettings = read_role(folder, OperatorSettings)
    config = _with_contract(config, folder, settings)
    with tempfile.TemporaryDirectory(prefix="fedlens-") as made:
        home = Path(made)
        write_connection(home, folder.absolute(), settings)
        places: dict[str, str | bool] = {"run.name": name, "run.only_copy": resume}
        app = write_app(home, config, places, COMPONENTS)
        environment = with_programs(write_programs(home), os.environ)
        environment.update({**SILENT, "FLWR_HOME": str(home)})
        flower = FlowerRuns(str(home / "bin" / "flwr"), environment)
        number = flower.begin(app)
        named = name or f"{number:x}"
        say_begun(named)
        flower.follow(number)
        return require_completed(flower.described(number), named, folder)


def _with_contract(config: Config, folder: Path, settings: OperatorSettings) -> Config:
    """Where ``data.name`` is ``federation``: the contract that the SuperLink's folder holds."""
    if config.data.name != OWN_DATA:
        return config
    contract = str(ask(address_of(folder, settings), STATUS).get("contract") or "")
    if not contract:
        raise DeployError(
            f"data.name = {OWN_DATA!r}, but the SuperLink's folder has no federation.toml: put the "
            "owners' there (`fedlens deploy init --contract`)"
        )
    return config.updated({"data.name": f"{OWN_DATA}:{contract}"})


def write_connection(home: Path, folder: Path, settings: OperatorSettings) -> None:
    """Write the connection and the token where Flower's own command looks for them."""
    connection = {"address": settings.superlink, "root-certificates": str(folder / settings.ca)}
    config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    (home / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    token = read_token(folder / settings.token)
    kept = {"authn-type": "oidc", "oidc-access-token": token, "oidc-refresh-token": token}
    lines = [
        f"{ACCOUNT.format(place=settings.superlink, what=what)}: "
        f"{base64.b64encode(value.encode()).decode()}\n"
        for what, value in kept.items()
    ]
    write_durably(home / "credentials.yaml", "".join(lines).encode(), private=True)
