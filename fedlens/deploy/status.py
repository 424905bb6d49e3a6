"""How a federation and its runs go, in one answer and in lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlens.deploy.asking import Unreachable, address_of, ask
from fedlens.deploy.layout import DeployError, NodeSettings, SuperLinkSettings, read_folder
from fedlens.deploy.names import STATUS
from fedlens.deploy.run_reports import run_reports


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
    return {"superlink": "up", **found}


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
