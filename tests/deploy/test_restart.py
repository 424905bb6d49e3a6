"""A node that is killed comes back, and nothing outlives the one that keeps it running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedlens.cli import main
from fedlens.deploy.background import running, start_in_background, stop_in_background
from fedlens.deploy.checking import still_lacking
from fedlens.deploy.initialise import FederationPlan, initialise
from fedlens.deploy.layout import state_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def federation(tmp_path, free_port):
    folder = tmp_path / "wards"
    initialise(folder, FederationPlan(nodes=("north",), port=free_port()))
    node = folder / "nodes" / "north"
    settings = node / "deploy.toml"
    settings.write_text(settings.read_text().replace("9501", str(free_port())))
    arrays = {"images": np.zeros((4, 1, 28, 28), np.uint8), "labels": np.zeros(4, np.int64)}
    with (node / "data").open("wb") as file:
        np.savez(file, **arrays, users=np.arange(4), classes=np.array(2))
    (node / "data").chmod(0o600)
    try:
        start_in_background(folder / "superlink")
        wait_for(lambda: still_lacking(folder / "superlink") is None)
        supervisor = start_in_background(node)
        wait_for(lambda: still_lacking(node) is None)
        yield folder, supervisor
    finally:
        for made in (node, folder / "superlink"):
            stop_in_background(made)


def wait_for(what, seconds=240.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.2)


def processes_of(folder: Path) -> list[int]:
    """Numbers of the processes whose command line names a folder of a deployment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words or str(state_place(folder, "")) in words:
            found.append(int(path.parent.name))
    return found


def test_a_killed_node_comes_back_and_ends_with_its_supervisor(federation):
    folder, supervisor = federation
    node = folder / "nodes" / "north"
    (service,) = (n for n in processes_of(node) if b"deploy.supernode" in cmdline(n))
    os.kill(service, signal.SIGKILL)
    wait_for(lambda: service not in processes_of(node))
    wait_for(lambda: still_lacking(node) is None)  # refused by Flower at first: error 305
    assert "Exit Code: 305" in (node / "service.log").read_text()
    assert running(node) == supervisor.pid
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: processes_of(node) == [], 60)
    assert state_place(node, "").exists()  # until the next start, or stop
    assert main(["deploy", "stop", str(node)]) == 0
    assert not state_place(node, "").exists()
    status = [
        sys.executable,
        "-m",
        "fedlens.cli",
        "deploy",
        "status",
        str(folder / "superlink"),
    ]
    said = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    assert "superlink  up" in said and "north" in said


def cmdline(number: int) -> bytes:
    return Path(f"/proc/{number}/cmdline").read_bytes()
