"""What nodes are called where an operator reads of them: by the names that a SuperLink admits.

A deployed SuperLink keeps `NAMES` in its folder, ``$FEDLENS_HOME``: Flower's ids of its nodes with
the names of their keys. Elsewhere a node is called by its position among the nodes, from 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from fedlens.accountant.ledger.terms import fedlens_home

NAMES = "node-names.json"


def node_names() -> dict[int, str]:
    """Names by Flower's ids; empty where no SuperLink keeps them."""
    try:
        found = json.loads((fedlens_home() / NAMES).read_text(encoding="utf-8"))
        return {int(identity): str(name) for identity, name in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def name_of(node_id: int, partition: int) -> str:
    """What a node is called in logs, status and refusals."""
    return node_names().get(node_id, f"node {partition}")


def names_of(node_ids: Iterable[int]) -> str:
    """What nodes are called whose positions are not known; empty where they have no names."""
    names = node_names()
    return ", ".join(sorted(names[i] for i in node_ids if i in names))
