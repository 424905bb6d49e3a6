"""What nodes are called where an operator reads of them: by the names that a SuperLink admits.

A deployed SuperLink keeps `NAMES` in its folder, ``$FEDLENS_HOME``: Flower's ids of its nodes with
the names of their keys. Elsewhere a node is called by its position among the nodes, from 0.

Beside it lies `PLACES`: which position the node of a key had when it last took part. No other key
gets that position while the node is admitted, whatever it claims.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from fedlens.accountant.ledger.terms import fedlens_home
from fedlens.foundation.files import write_durably
from fedlens.server.federation.contract_check import EnrolmentError

NAMES, PLACES = "node-names.json", "node-places.json"


def node_names() -> dict[int, str]:
    """Names by Flower's ids; empty where no SuperLink keeps them.

    Raises:
        EnrolmentError: the file that it keeps is damaged: any key would get any position.
    """
    try:
        return {int(identity): str(name) for identity, name in _kept(NAMES).items()}
    except ValueError:
        raise _damaged(NAMES, "starting the SuperLink writes it anew") from None


def owner_of(partition: int, node_id: int) -> str:
    """The name of another admitted node whose position this is; empty where there is none."""
    names, places = node_names(), _kept(PLACES)
    others = [name for identity, name in names.items() if identity != node_id]
    return next((name for name in others if places.get(name) == partition), "")


def keep_places(positions: Mapping[int, int]) -> None:
    """Remember the positions of admitted nodes, by Flower's ids of those that take part."""
    names, before = node_names(), _kept(PLACES)
    now = {name: before[name] for name in names.values() if name in before}
    now |= {names[i]: position for i, position in positions.items() if i in names}
    if now != before:
        content = json.dumps(now, sort_keys=True).encode("ascii")
        write_durably(fedlens_home() / PLACES, content, private=True)


def _kept(name: str) -> dict[str, object]:
    """What one of the two files says; nothing where there is none.

    Raises:
        EnrolmentError: it is damaged.
    """
    try:
        found = json.loads((fedlens_home() / name).read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _damaged(name, "bring it back from a backup, or remove it")
    return found


def _damaged(name: str, fix: str) -> EnrolmentError:
    return EnrolmentError(f"{fedlens_home() / name} is damaged: {fix}")


def name_of(node_id: int, partition: int) -> str:
    """What a node is called in logs, status and refusals."""
    return node_names().get(node_id, f"node {partition}")


def names_of(node_ids: Iterable[int]) -> str:
    """What nodes are called whose positions are not known; empty where they have no names."""
    names = node_names()
    return ", ".join(sorted(names[i] for i in node_ids if i in names))
