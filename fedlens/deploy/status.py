"""How a federation and its runs go: asked of the SuperLink over TLS, or read on its machine."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedlens.deploy.certificates import host_here
from fedlens.deploy.layout import (
    STATUS,
    DeployError,
    DeploySettings,
    NodeSettings,
    OperatorSettings,
    SuperLinkSettings,
    read_folder,
)
from fedlens.deploy.proxies import opener_to, through
from fedlens.foundation.errors import FedlensError

Answer = TypeVar("Answer")


class Unreachable(FedlensError):
    """A SuperLink that gave no answer; the message says why."""


class Address(NamedTuple):
    """Where a SuperLink is, and how it is asked."""

    place: str
    """``HOST:PORT``."""
    authority: Path
    token: str = ""
    own: bool = False
    """Whether it is on this machine, which no proxy leads to."""


def address_of(folder: Path, settings: DeploySettings) -> Address:
    """The SuperLink of a folder of any kind."""
    if isinstance(settings, SuperLinkSettings):
        host = host_here(folder / settings.certificate, settings.host, settings.names)
        return Address(f"{host}:{settings.port}", folder / settings.ca, own=True)
    token = read_token(folder / settings.token) if isinstance(settings, OperatorSettings) else ""
    return Address(settings.superlink, folder / settings.ca, token)


def read_token(path: Path) -> str:
    """An operator's token from its file.

    Raises:
        DeployError: it cannot be read, or others can read it too.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise DeployError(f"{path} can be read by others: chmod 600 {path}")
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise DeployError(f"{path}: {error.strerror}; put the operator's token there") from None
    except UnicodeDecodeError:
        raise DeployError(f"{path} holds no token: put the operator's there") from None


LONGEST_PAGE = 1 << 24
"""Bytes: a status with a hundred thousand runs."""


def ask(address: Address, page: str, timeout: float = 10.0) -> Any:
    """The JSON of one of the SuperLink's pages.

    Raises:
        Unreachable: nothing answers there, its certificate is not trusted, or it refuses.
    """
    return fetch(address, page, timeout, lambda answer: json.loads(read_page(answer) or b"null"))


def read_page(answer: HTTPResponse) -> bytes:
    """All of a page's content, which whoever answers may make as long as they like.

    Raises:
        ValueError: it is longer than any page of ours.
    """
    content = answer.read(LONGEST_PAGE + 1)
    if len(content) > LONGEST_PAGE:
        raise ValueError(f"its answer is over {LONGEST_PAGE} bytes")
    return content


def fetch(
    address: Address, page: str, timeout: float, take: Callable[[HTTPResponse], Answer]
) -> Answer:
    """What ``take`` makes of the SuperLink's answer.

    Raises:
        Unreachable: nothing answers there, its certificate is not trusted, or it refuses.
    """
    request = urllib.request.Request(f"https://{address.place}{page}")
    if address.token:
        request.add_header("authorization", f"Bearer {address.token}")
    try:
        context = ssl.create_default_context(cafile=str(address.authority))
        opener = opener_to(address.place, context, own=address.own)
        with opener.open(request, timeout=timeout) as answer:
            return take(answer)
    except urllib.error.HTTPError as error:
        raise Unreachable(f"the SuperLink at {address.place} refuses ({error.code})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        by = through(address.place, own=address.own)
        raise Unreachable(
            f"the SuperLink at {address.place} does not answer{by}: {reason}"
        ) from None


UP = "up"
STATUS_FILE = "status.json"
GOES_ON = "its process ended; `fedlens deploy run OPERATOR` with --name {} goes on"


def run_reports(runs: Path) -> list[dict[str, Any]]:
    """One report a run, in the order of their names; a damaged one says so."""
    found = []
    for folder in sorted(runs.glob("*")):
        path = folder / STATUS_FILE
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {"status": "begun" if folder.is_dir() else "unreadable"}
        if isinstance(report, dict):
            if report.get("status") in ("running", "waiting") and _left(folder):
                report |= {"status": "interrupted", "reason": GOES_ON.format(folder.name)}
            found.append({**report, "name": folder.name, "path": str(folder)})
    return found


def _left(folder: Path) -> bool:
    """Whether the process that trained in a run's folder is no more, by the number in its lock.

    The lock itself is not tried: a process that begins meanwhile would take it for another's.
    """
    try:
        os.kill(int((folder / "lock").read_text(encoding="ascii")), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def federation_status(folder: Path) -> dict[str, Any]:
    """Nodes and runs, as the SuperLink says them; runs alone where it is down, on its machine.

    Raises:
        DeployError: the folder is a node's: it is told of no runs.
        Unreachable: the SuperLink does not answer an operator.
    """
    settings = read_folder(folder, floor=False)
    if isinstance(settings, NodeSettings):
        raise DeployError(
            f"{folder} is a node's folder: `fedlens deploy check` tells how it is; the status of "
            "runs is asked from the SuperLink's or an operator's"
        )
    try:
        found: dict[str, Any] = ask(address_of(folder, settings), STATUS)
    except Unreachable as error:
        if not isinstance(settings, SuperLinkSettings):
            raise
        return {"superlink": str(error), "nodes": [], "runs": run_reports(folder / "runs")}
    return {"superlink": UP, **found}


def status_lines(found: Mapping[str, Any]) -> list[str]:
    """The same for people."""
    lines = [f"superlink  {found['superlink']}"]
    for node in found["nodes"]:
        why = f": {node['why']}" if node.get("why") else ""
        lines.append(f"node       {node['name']}  {node['status']}{why}")
    for run in found["runs"]:
        lines += ["", *_run_lines(run)]
    if not found["runs"]:
        lines.append("no run yet")
    return lines


def _run_lines(run: Mapping[str, Any]) -> list[str]:
    reason = f": {run['reason']}" if run.get("reason") else ""
    lines = [
        f"run        {run['name']}  {run.get('status', 'unknown')}{reason}",
        f"round      {run.get('round', 0)} of {run.get('rounds', '?')}",
    ]
    if "dp_epsilon" in run:
        dp, bdp = _epsilon(run["dp_epsilon"]), _epsilon(run["bdp_epsilon"])
        lines.append(f"DP         ε = {dp} at δ = {run['delta']:g}")
        lines.append(f"Bayesian   ε = {bdp} at δ = {run['bayesian_delta']:g}")
    if "nodes_answered" in run:
        refused = run.get("refused") or {}
        lines.append(
            f"nodes      {run['nodes_answered']} of {run['nodes_asked']} answered the last round, "
            f"{run['nodes_missing']} missing, {sum(refused.values())} refused"
        )
        lines += [f"refused    {count} x {why}" for why, count in refused.items()]
    return [*lines, f"output     {run.get('output', run['path'])}"]


def _epsilon(value: float | None) -> str:
    from fedlens.accountant.wording import shown

    return shown(float("inf") if value is None else value)
