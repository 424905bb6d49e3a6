"""Figures for Prometheus: of a federation's operation, and none that tells of a user.

A node counts messages and bundles, never users, records, norms or durations: those depend on what
users hold. A server shows what its release says anyway: rounds and both ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = tuple[str, str, str, float, Mapping[str, str]]
"""A figure: name, kind, help, value, labels."""


@dataclass
class NodeCounts:
    """What a node's process counts."""

    messages: int = 0
    refused: int = 0
    connected: bool = False


def node_metrics(counts: NodeCounts) -> str:
    """The page of a node."""
    refused, connected = counts.refused, int(counts.connected)
    return _page(
        [
            ("fedlens_node_connected", "gauge", "Whether the SuperLink let it in.", connected, {}),
            ("fedlens_node_messages_total", "counter", "Messages taken in.", counts.messages, {}),
            ("fedlens_node_bundles_refused_total", "counter", "Bundles refused.", refused, {}),
        ]
    )


def server_metrics(status: Mapping[str, Any]) -> str:
    """The page of a SuperLink, from what `fedlens deploy status` shows."""
    nodes = Counter(str(node["status"]) for node in status["nodes"])
    states = ("online", "offline", "registered", "refused")
    rows: list[Row] = [
        ("fedlens_nodes", "gauge", "Nodes by state.", nodes[state], {"state": state})
        for state in states
    ]
    for run in status["runs"]:
        label = {"run": str(run["name"])}
        state = {**label, "state": str(run.get("status", "unknown"))}
        rows.append(("fedlens_run_state", "gauge", "The state that each run is in.", 1, state))
        for key, name, help_ in (
            ("round", "fedlens_run_round", "Whole rounds done."),
            ("rounds", "fedlens_run_rounds_planned", "Rounds that are planned."),
            ("nodes_answered", "fedlens_run_nodes_answered", "Nodes whose last reply counted."),
            ("nodes_asked", "fedlens_run_nodes_asked", "Nodes that were asked last."),
            ("dp_epsilon", "fedlens_run_dp_epsilon", "DP epsilon spent, at the run's delta."),
            ("bdp_epsilon", "fedlens_run_bayesian_epsilon", "Bayesian DP epsilon spent (sound)."),
        ):
            value = run.get(key)
            if isinstance(value, int | float):
                rows.append((name, "gauge", help_, value, label))
    return _page(rows)


def _page(rows: Iterable[Row]) -> str:
    lines: list[str] = []
    grouped: dict[str, list[str]] = {}
    for name, kind, help_, value, labels in rows:
        head = [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        shown = f"{name}{{{inside}}}" if inside else name
        grouped.setdefault(name, head).append(f"{shown} {value!r}")
    for group in grouped.values():
        lines += group
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
