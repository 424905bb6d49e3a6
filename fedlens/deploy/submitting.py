"""Starting a run over the federation, as an operator, and following it to its end."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedlens.deploy.asking import address_of, ask, read_token
from fedlens.deploy.bundles import COMPONENTS
from fedlens.deploy.layout import DeployError, OperatorSettings, read_role
from fedlens.deploy.names import OWN_DATA, STATUS
from foundation.errors import FedlensError
from foundation.files import write_durably
from foundation.offline import SILENT
from simulations.transports.flower_app import with_programs, write_app, write_programs

if TYPE_CHECKING:
    from server.config.tree import Config

CONNECTION = "fedlens"
ACCOUNT = "flower.account-auth.{place}.{what}"


class RunFailed(FedlensError, RuntimeError):
    """A run that did not end as a run ends; its log says why."""


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
        What Flower says of the run: its number, status and times.

    Raises:
        DeployError: the folder cannot be used.
        RunFailed: it failed, or could not be started.
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
        flwr = str(home / "bin" / "flwr")
        _call([flwr, "run", str(app), CONNECTION, "--stream"], environment)
        return _last_run(flwr, environment)


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


def _call(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode:
        raise RunFailed("the run could not be started, or its log was cut off; see above")


def _last_run(flwr: str, environment: dict[str, str]) -> dict[str, Any]:
    """The newest run, which must have ended well: ``flwr run`` itself says nothing of that."""
    command = [flwr, "ls", CONNECTION, "--limit", "1", "--format", "json"]
    listed = subprocess.run(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        runs = json.loads(listed.stdout)["runs"]
        found: dict[str, Any] = runs[0]
    except (ValueError, KeyError, IndexError):
        raise RunFailed("the SuperLink does not say how the run ended") from None
    if not str(found.get("status", "")).endswith("completed"):
        raise RunFailed(f"the run ended as {found.get('status')}; its log above says why")
    return found
