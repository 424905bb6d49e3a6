"""From nothing to a run over three nodes with own pictures, by the commands of the docs' page."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest
from walk_steps import Shell, Walk, draw_pictures, logs, of_this_checkout, outside, read_walk

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.deploy.layout import state_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

MOST_COMMANDS, MOST_SECONDS = 12, 600.0
FRESH = "FEDLENS_FRESH_WALK"
SECURE = '\n[aggregation]\nsecure = true\nnoise = "distributed"\n'


@pytest.fixture
def walk(repository, tmp_path) -> Walk:
    """The page's walk, with its files and the wards' pictures laid in ``tmp_path``."""
    found = read_walk(repository)
    draw_pictures(tmp_path)
    for name, text in found.files.items():
        (tmp_path / name).write_text(text)
    return found


def test_the_walk_is_short(repository):
    found = read_walk(repository)
    assert len(found.install) + len(found.commands) <= MOST_COMMANDS
    assert set(found.files) == {"federation.toml", "first.toml"}


@pytest.mark.thorough
@pytest.mark.law("deployment: the walk of the docs works")
def test_the_walk_of_the_docs(walk, repository, tmp_path, free_port):
    """With the fedlens of this checkout, on ports that are free, and what strangers get of it."""
    shell = Shell(tmp_path, of_this_checkout(tmp_path, repository, sys.executable))
    port, metrics = free_port(), free_port()
    init, *rest = walk.commands
    assert " deploy init " in init
    try:
        shell(f"{init} --port {port}")
        move_metrics(tmp_path, [metrics, free_port(), free_port()])
        carry_out(tuple(rest), shell)
        secure_sums_go_through(walk, shell, tmp_path)
        strangers_get_nothing(shell, tmp_path, port)
        nothing_is_left_open(tmp_path, metrics)
    finally:
        shell("fedlens deploy stop federation/superlink federation/nodes/*")
    nothing_runs_on(tmp_path)


@pytest.mark.skipif(not os.environ.get(FRESH), reason=f"{FRESH}=1 installs from a fresh clone")
def test_the_whole_walk_from_a_fresh_clone(walk, repository, tmp_path):
    """Clone, environment, installation, federation, run: and the clone is gone before the last."""
    shell = Shell(tmp_path, outside(("FEDLENS_TEST_MODE", "PYTHONPATH", "VIRTUAL_ENV")))
    for command in walk.install:
        shell(command.replace("REPOSITORY", shlex.quote(str(repository))))
    shutil.rmtree(tmp_path / "fedlens")
    assert str(tmp_path / "venv") in shell(
        "python -c 'import fedlens.server; print(fedlens.server.__file__)'"
    )
    try:
        carry_out(walk.commands, shell)
    finally:
        shell("fedlens deploy stop federation/superlink federation/nodes/*")
    nothing_runs_on(tmp_path)
    print(f"{shell.seconds:6.1f} s  ({shell.processor:.1f} of a processor)  in all")
    assert shell.seconds <= MOST_SECONDS


def move_metrics(folder: Path, ports: list[int]) -> None:
    """Have nodes answer for their metrics on other ports: a suite beside this one has the usual."""
    for number, port in enumerate(ports):
        settings = folder / f"federation/nodes/node-{number + 1}/deploy.toml"
        usual = f"port = {9501 + number}\n"
        assert usual in settings.read_text()
        settings.write_text(settings.read_text().replace(usual, f"port = {port}\n"))


def carry_out(commands: tuple[str, ...], shell: Shell) -> None:
    """The federation's commands, and what the last two must say."""
    said = {command: shell(command) for command in commands}
    status = said[commands[-1]]
    for words in ("finished", "1 of 1", "3 of 3 answered", "DP", "Bayesian", "runs/first"):
        assert words in status, status
    (run,) = (text for command, text in said.items() if " deploy run " in command)
    assert "round 1 of 1: DP ε" in run and "Bayesian DP ε" in run and "output in" in run


def secure_sums_go_through(walk: Walk, shell: Shell, folder: Path) -> None:
    """A second run over the same SuperNodes: masked by their keys, with noise of their own."""
    masked = walk.files["first.toml"] + SECURE
    (folder / "secure.toml").write_text(masked.replace("deadline = 120.0", "deadline = 600.0"))
    operator = "federation/operators/operator"
    said = shell(f"fedlens deploy run {operator} --config secure.toml --name second")
    assert "round 1 of 1: DP ε" in said and "3 of 3 nodes answered" in said
    run = folder / "federation/superlink/runs/second"
    (entry,) = Ledger.verify(run / "ledger.jsonl")
    assert entry.event.released.endswith("by nodes")
    assert "ledger" in shell(f"fedlens ledger verify {run}")
    assert "no roster" not in logs(folder)  # each node knew the others' keys


def nothing_runs_on(folder: Path) -> None:
    """The run says that it finished, and no state of Flower's is left."""
    state = json.loads((folder / "federation/superlink/runs/first/status.json").read_text())
    assert state["status"] == "finished"
    made = [folder / "federation/superlink", *(folder / "federation/nodes").iterdir()]
    assert not [one for one in made if state_place(one, "").exists()]


def strangers_get_nothing(shell: Shell, folder: Path, port: int) -> None:
    """With the authority's certificate alone no run is started and no node registered."""
    home = folder / "stranger"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "localhost:{port}"\n'
        f'root-certificates = "{folder}/federation/nodes/node-1/ca.crt"\n'
    )
    flwr = f"FLWR_HOME={home} {shlex.quote(sys.executable)} -m flwr.cli.app"
    said = shell(f"{flwr} supernode register federation/superlink/nodes/node-1.pub x", fails=True)
    assert "Authentication failed" in said
    (folder / "federation/operators/operator/token").write_text("wrong")
    said = shell("fedlens deploy status federation/operators/operator", fails=True)
    assert "refuses (401)" in said


def nothing_is_left_open(folder: Path, port: int) -> None:
    """What any process wrote is for its owner; metrics tell of nodes and rounds."""
    data = set(folder.glob("federation/nodes/*/data/**/*"))  # in a closed folder
    for path in set((folder / "federation").rglob("*")) - data:
        assert path.stat().st_mode & 0o077 == 0, path
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert {"fedlens_node_connected 1", "fedlens_node_messages_total 8"} <= set(text.splitlines())
