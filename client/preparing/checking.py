"""What is wrong with a prepared store, a line for each thing, with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.client.contract import FederationContract
from fedlens.client.node.store import NodeStore, changed_files, open_store
from fedlens.client.users.protocol import NodeDataError
from fedlens.foundation.unlabelled import NO_CLASS, PARTLY

ROWS = 65_536
AGAIN = "prepare the data anew"


def store_faults(path: Path, contract: FederationContract | None = None) -> list[str]:
    """Everything that is wrong with a store; none where it can be used as it is.

    Reads all of it, a part at a time.

    Args:
        path: the store's folder.
        contract: the federation's present one; None: the store's own.
    """
    try:
        store = open_store(path)
    except NodeDataError as error:
        return [str(error)]
    found = [*changed_files(store), *_value_faults(store)]
    if contract is not None and contract.digest() != store.contract.digest():
        found.append(f"{path}: was prepared under another contract; {AGAIN} under this one")
    if path.stat().st_mode & 0o077:
        found.append(f"{path}: other users of the machine may look into it; chmod 700 it")
    if not store.facts.records:
        found.append(f"{path}: holds no record")
    return found


def _value_faults(store: NodeStore) -> list[str]:
    arrays, records = store.arrays, store.facts.records
    ranges = {"labels": len(store.contract.classes), "index": records}
    if store.contract.sensitive is not None:
        ranges["sensitive"] = len(store.contract.sensitive.values)
    least = {"labels": NO_CLASS} if store.contract.labels == PARTLY else {}
    faults = [
        f"{store.path}/{name}.npy: has values outside {least.get(name, 0)}..{end - 1}; {AGAIN}"
        for name, end in ranges.items()
        if not _within(arrays[name], least.get(name, 0), end)
    ]
    offsets, ids = arrays["offsets"], arrays["ids"]
    ends = len(offsets) > 0 and int(offsets[0]) == 0 and int(offsets[-1]) == records
    if not ends or not _rises(offsets, 0):
        faults.append(f"{store.path}/offsets.npy: is no index by user; {AGAIN}")
    if not _rises(ids, 1):
        faults.append(f"{store.path}/ids.npy: has a user twice, or not in order; {AGAIN}")
    return faults


def _within(values: NDArray[Any], least: int, end: int) -> bool:
    parts = (values[start : start + ROWS] for start in range(0, len(values), ROWS))
    return all(int(part.min()) >= least and int(part.max()) < end for part in parts)


def _rises(values: NDArray[Any], least: int) -> bool:
    """Whether each value is above the one before by ``least`` or more."""
    parts = (values[start : start + ROWS + 1] for start in range(0, len(values), ROWS))
    return all(bool((np.diff(part) >= least).all()) for part in parts)
