"""Starting a run over the federation, as an operator, and following it to its end."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedlens.deploy.bundles import COMPONENTS
from fedlens.deploy.layout import OWN_DATA, STATUS, DeployError, OperatorSettings, read_role
from fedlens.deploy.proxies import through, with_direct
from fedlens.deploy.status import Address, address_of, ask, read_token
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.files import write_durably
from fedlens.foundation.offline import SILENT
from fedlens.simulations.transports.flower_app import with_programs, write_app, write_programs

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config

CONNECTION = "fedlens"
COMPLETED, FINISHED = "finished:completed", "finished"
ASKED, PAUSE = 15, 2.0
"""How often, and how many seconds apart, a run is asked for whose log has ended."""


class RunFailed(FedlensError, RuntimeError):
    """A run that did not end as a run ends; the message says how to go on."""


class FlowerRuns:
    """Runs of one SuperLink, through Flower's command.

    Args:
        program: path of the command.
        environment: in which it finds the connection and the token.
        by: the proxy through which the SuperLink is asked, in words.
    """

    def __init__(self, program: str, environment: Mapping[str, str], by: str = "") -> None:
        self._program, self._environment, self._by = program, dict(environment), by

    def begin(self, app: Path) -> int:
        """Have a run started; its number.

        Raises:
            RunFailed: the SuperLink does not start it, and why.
        """
        said = self._asked("run", str(app), CONNECTION, "--format", "json")
        try:
            return int(said["run-id"])
        except (KeyError, TypeError, ValueError):
            why = " ".join(str(said.get("error-message", "it gave no reason")).split())
            raise RunFailed(f"the run could not be started{self._by}: {why}") from None

    def follow(self, number: int) -> None:
        """Show a run's log until it ends, or is cut off."""
        command = [self._program, "log", str(number), CONNECTION, "--stream"]
        subprocess.run(  # noqa: S603  (Flower's own program)
            command, env=self._environment, stdin=subprocess.DEVNULL, check=False
        )

    def described(self, number: int) -> dict[str, Any] | None:
        """What the SuperLink says of a run whose log ended; None where it does not know it.

        The log ends a moment before the run does, so it is asked until it ended.
        """
        found = None
        for _ in range(ASKED):
            said = self._asked("ls", CONNECTION, "--run-id", str(number), "--format", "json")
            runs = said.get("runs") or [None]
            found = runs[0] if isinstance(runs, list) and isinstance(runs[0], dict) else None
            if found is None or str(found.get("status", "")).startswith(FINISHED):
                break
            time.sleep(PAUSE)
        return found

    def _asked(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(  # noqa: S603  (Flower's own program)
            [self._program, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        try:
            said = json.loads(done.stdout)
        except ValueError:
            return {"error-message": done.stderr.decode(errors="replace")[-500:]}
        return said if isinstance(said, dict) else {}


def say_begun(name: str) -> None:
    """Tell the operator the run's name, by which it goes on after whatever befalls it."""
    sys.stderr.write(f"run {name} has begun\n")
    sys.stderr.flush()


def require_completed(found: dict[str, Any] | None, name: str, folder: Path) -> dict[str, Any]:
    """What the SuperLink says of a run that ended well.

    Raises:
        RunFailed: it did not, or no one can say; the message says how to go on.
    """
    again = f"the same command with --name {name} goes on from its last whole round"
    if found is None:
        raise RunFailed(
            f"the SuperLink ended, or was started again, while run {name} ran: once `fedlens "
            f"deploy status {folder}` says that it is up, {again}; nothing that was spent is lost"
        )
    status = str(found.get("status", ""))
    if not status.startswith(FINISHED):
        raise RunFailed(
            f"the log of run {name} was cut off, and it is {status}: `fedlens deploy status "
            f"{folder}` says how it goes; if it has stopped, {again}"
        )
    if status != COMPLETED:
        raise RunFailed(
            f"run {name} ended as {status}; its log above says why. Once that is fixed, {again}"
        )
    return {**found, "name": name}


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
        What Flower says of the run: its number, status and times; ``name`` is its folder's, and
        ``stopped`` why a budget stopped it, where one did.

    Raises:
        DeployError: the folder cannot be used.
        RunFailed: it failed, could not be started, or is no longer known; says how to go on.
    """
    settings: OperatorSettings = read_role(folder, OperatorSettings)
    _check_contract(config, folder, settings)
    with tempfile.TemporaryDirectory(prefix="fedlens-") as made:
        home = Path(made)
        write_connection(home, folder.absolute(), settings)
        places: dict[str, str | bool] = {"run.name": name, "run.only_copy": resume}
        app = write_app(home, config, places, COMPONENTS)
        environment = with_direct(with_programs(write_programs(home), os.environ))
        environment.update({**SILENT, "FLWR_HOME": str(home)})
        by = through(settings.superlink)
        flower = FlowerRuns(str(home / "bin" / "flwr"), environment, by)
        number = flower.begin(app)
        named = name or f"{number:x}"
        say_begun(named)
        flower.follow(number)
        found = require_completed(flower.described(number), named, folder)
    return {**found, **stopped_by_budget(address_of(folder, settings), named)}


def stopped_by_budget(address: Address, name: str) -> dict[str, str]:
    """``stopped``, why a budget ended a run before its plan; nothing where none did.

    Raises:
        Unreachable: the SuperLink does not answer.
    """
    for run in ask(address, STATUS)["runs"]:
        if run["name"] == name and run.get("status") == "stopped-by-budget":
            return {"stopped": str(run.get("reason") or "")}
    return {}


def _check_contract(config: Config, folder: Path, settings: OperatorSettings) -> None:
    """Where ``data.name`` is ``federation``: refuse a SuperLink whose folder holds no contract."""
    if config.data.name != OWN_DATA:
        return
    if not ask(address_of(folder, settings), STATUS).get("contract"):
        raise DeployError(
            f"data.name = {OWN_DATA!r}, but the SuperLink's folder has no federation.toml: put the "
            "owners' there (`fedlens deploy init --contract`)"
        )


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
