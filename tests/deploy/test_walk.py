"""From nothing to a run over three nodes with own pictures, by the commands of the docs' page."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = "docs/how-to/deploy-a-federation.md"
BLOCK = re.compile(r"```(toml|bash)\n(.*?)```", re.DOTALL)
MOST_COMMANDS = 12
WARDS, PEOPLE, PICTURES = 3, 12, 4


@pytest.fixture
def page(repository) -> list[tuple[str, str]]:
    """The blocks of the page's walk: ("toml" or "bash", text)."""
    text = (repository / PAGE).read_text()
    return BLOCK.findall(text.partition("## The walk")[2].partition("\n## ")[0])


@pytest.fixture
def shell(repository, tmp_path):
    """Runs a command line in ``tmp_path``, where ``fedlens`` is this checkout's."""
    programs = tmp_path / ".bin"
    programs.mkdir()
    script = programs / "fedlens"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fedlens.cli "$@"\n')
    script.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "FEDLENS_TEST_MODE"}
    paths = [str(repository), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])

    def run(command: str, *, fails: bool = False) -> str:
        began = time.monotonic()
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        said = done.stdout + done.stderr
        print(f"{time.monotonic() - began:5.1f} s  {command}")
        assert (done.returncode != 0) == fails, f"$ {command}\n{said}\n{logs(tmp_path)}"
        return said

    return run


def logs(folder: Path) -> str:
    found = sorted(folder.glob("federation/**/service.log"))
    return "\n".join(f"== {path}\n{path.read_text()[-4000:]}" for path in found)


def draw_pictures(folder: Path) -> None:
    """Three wards' people with pictures of rings and bars, in folders by class."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32] - 15.5
    for ward in range(1, WARDS + 1):
        for person in range(PEOPLE):
            for number in range(PICTURES):
                name = ("round", "straight")[number % 2]
                width = rng.uniform(1.5, 4)
                shape = np.hypot(x, y) - 9 if name == "round" else x + rng.uniform(-4, 4)
                pixels = (255 * (np.abs(shape) < width)).astype(np.uint8)
                home = folder / f"pictures/ward-{ward}" / name / f"person-{ward}-{person}"
                home.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(home / f"{number}.png")


def test_the_walk_of_the_docs(page, shell, tmp_path):
    draw_pictures(tmp_path)
    for kind, text in page:
        if kind == "toml":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
    commands = [line for kind, text in page if kind == "bash" for line in text.splitlines() if line]
    assert len(commands) + 1 <= MOST_COMMANDS  # and the installation
    try:
        said = {command: shell(command) for command in commands}
        status = said[commands[-1]]
        for words in ("finished", "1 of 1", "3 of 3 answered", "DP", "Bayesian", "runs/first"):
            assert words in status, status
        (run,) = (text for command, text in said.items() if " deploy run " in command)
        assert "round 1 of 1: DP ε" in run and "Bayesian DP ε" in run and "output in" in run
        strangers_get_nothing(shell, tmp_path)
        nothing_is_left_open(tmp_path)
    finally:
        shell("fedlens deploy stop federation/superlink federation/nodes/*")
    state = json.loads((tmp_path / "federation/superlink/runs/first/status.json").read_text())
    assert state["status"] == "finished"
    assert not list(Path("/dev/shm").glob(f"fedlens-{os.getuid()}-*/flwr*"))


def strangers_get_nothing(shell, folder: Path) -> None:
    """With the authority's certificate alone no run is started and no node registered."""
    home = folder / "stranger"
    home.mkdir()
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "x"\n[superlink.x]\naddress = "localhost:9443"\n'
        f'root-certificates = "{folder}/federation/nodes/node-1/ca.crt"\n'
    )
    flwr = f"FLWR_HOME={home} {shlex.quote(sys.executable)} -m flwr.cli.app"
    said = shell(f"{flwr} supernode register federation/superlink/nodes/node-1.pub x", fails=True)
    assert "Authentication failed" in said
    (folder / "federation/operators/operator/token").write_text("wrong")
    said = shell("fedlens deploy status federation/operators/operator", fails=True)
    assert "refuses (401)" in said


def nothing_is_left_open(folder: Path) -> None:
    """What any process wrote is for its owner; metrics tell of nodes and rounds."""
    data = set(folder.glob("federation/nodes/*/data/**/*"))  # in a closed folder
    for path in set((folder / "federation").rglob("*")) - data:
        assert path.stat().st_mode & 0o077 == 0, path
    with urllib.request.urlopen("http://127.0.0.1:9501/metrics") as answer:
        text = answer.read().decode()
    assert {"fedlens_node_connected 1", "fedlens_node_messages_total 2"} <= set(text.splitlines())
