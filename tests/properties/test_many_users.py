"""A node with a million users takes no more memory than one with a thousand."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import open_memmap

from fedlens.client.contract import CONTRACT, FederationContract
from fedlens.client.node.store import LAYOUT, STORE, NodeStoreFacts

MEGABYTES = 100
CLASSES = ("a", "b", "c")


def a_store(folder: Path, users: int) -> Path:
    """A store of a record for each user, blank pictures in a file with holes."""
    folder.mkdir()
    contract = FederationContract(
        name="many", classes=CLASSES, image={"side": 28}, declared={"ward": ["1", "2"]}
    )
    columns = {
        "images": ("|u1", (users, 1, 28, 28)), "labels": ("<i8", (users,)),
        "index": ("<i8", (users,)), "offsets": ("<i8", (users + 1,)), "ids": ("<i8", (users,)),
        "declared_ward": ("<U1", (users,)),
    }  # fmt: skip
    for name, (kind, shape) in columns.items():
        array = open_memmap(folder / f"{name}.npy", "w+", kind, shape)
        if name in ("index", "offsets", "ids"):
            array[:] = np.arange(len(array))
        if name == "declared_ward":
            array[:] = "1"
        array.flush()
    (folder / CONTRACT).write_text(contract.to_toml())
    facts = NodeStoreFacts(
        layout=LAYOUT, contract=contract.digest(), records=users, users=users,
        files={name: sha256_of(folder / f"{name}.npy") for name in columns},
    )  # fmt: skip
    (folder / STORE).write_text(facts.model_dump_json())
    return folder


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measured(script: str, *words: str) -> dict[str, float]:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(here / script), *words],
        check=True,
        capture_output=True,
        cwd=here.parents[1],
        env={"PYTHONPATH": f"{here.parents[1]}:{here}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
        timeout=300,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def asked(path: Path, users: int) -> float:
    """Megabytes that a request takes on a node over this store."""
    return measured("heavy_node.py", str(path), "frozen", "user", "1", str(users))["megabytes"]


@pytest.mark.slow
def test_a_request_of_a_million_users_takes_no_more_memory_than_of_a_thousand(tmp_path):
    few = asked(a_store(tmp_path / "few", 1000), 1000)
    many = asked(a_store(tmp_path / "many", 1_000_000), 1_000_000)
    assert many - few < MEGABYTES


@pytest.mark.thorough
@pytest.mark.slow
def test_preparing_holds_no_more_than_a_few_bytes_a_record(tmp_path):
    found = []
    for records in (1000, 150_000):
        (folder := tmp_path / str(records)).mkdir()
        found.append(measured("preparing_node.py", str(folder), str(records)))
    assert [one["users"] for one in found] == [1000, 150_000]
    assert found[1]["megabytes"] - found[0]["megabytes"] < 0.1 * MEGABYTES


@pytest.mark.thorough
@pytest.mark.slow
def test_a_million_simulated_users_take_no_more_memory_than_a_thousand():
    few, many = (measured("simulated_users.py", str(n))["megabytes"] for n in (1000, 1_000_000))
    assert many - few < MEGABYTES
