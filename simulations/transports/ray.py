"""Training through ``flwr run``: a SuperLink of our own, Ray behind it, and no word to the outside.

The SuperLink gets a folder, a port and a process group to itself, and all three go when the run is
over. Nothing is installed or looked up over a network.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import tomli_w

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.foundation.errors import FedlensError
from fedlens.server.config.tree import Config
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.round.status import OnProgress
from fedlens.server.run.arrays import digest_of
from fedlens.server.run.directory import RunDirectory
from fedlens.server.run.store import VARIABLE
from fedlens.server.training import Outcome
from fedlens.simulations.transports.flower_app import (
    PROGRAMS,
    with_programs,
    write_app,
    write_programs,
)
from fedlens.store import open_store

START_SECONDS = 60
CONNECTION = "fedlens"


NODE_CPUS, NODE_GPUS = "FEDLENS_NODE_CPUS", "FEDLENS_NODE_GPUS"
"""Environment: cores, and (shares of) GPUs, that Ray keeps for each node that is at work."""
CLUSTER = "RAY_ADDRESS"
"""Environment: a Ray cluster that is there already, which Ray itself looks for under this name."""


class TransportError(FedlensError, RuntimeError):
    """The transport could not carry the run; the message says what to look at."""


def train_through_ray(
    config: Config, directory: RunDirectory, store_url: str, observer: OnProgress | None
) -> Outcome:
    """Train with ``flwr run`` over simulated SuperNodes.

    Raises:
        TransportError: Ray is not installed, or the run failed.
    """
    if find_spec("ray") is None:
        raise TransportError("Ray is not installed: pip install 'fedlens[ray]'")
    with tempfile.TemporaryDirectory(prefix="fedlens-") as folder:
        home = Path(folder)
        app = write_app(home, config, {"run.out": str(directory.path)})
        with _superlink(home, write_programs(home), store_url) as environment:
            _submit(app, config, home, environment)
        return _outcome(config, directory, store_url, _tail(home / "run.log"))


@contextmanager
def _superlink(home: Path, programs: Path, store_url: str) -> Iterator[dict[str, str]]:
    """A SuperLink on a free port for as long as the context lasts; yields the environment."""
    port = _free_port()
    environment = {**_environment(home, programs), VARIABLE: store_url}
    connection = {"address": f"127.0.0.1:{port}", "insecure": True}
    config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    (home / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    command = [str(programs / "flower-superlink"), "--simulation", "--insecure"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--disable-runtime-dependency-installation"]
    with (home / "superlink.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  (our own program and arguments)
            command,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=home,
            start_new_session=True,
        )
    try:
        _wait_until_up(process, port, home)
        yield environment
    finally:
        _stop(process)


def _environment(home: Path, programs: Path) -> dict[str, str]:
    return {
        **with_programs(programs, os.environ),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "OMP_NUM_THREADS": "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    raise TransportError(f"the SuperLink did not start: {_tail(home / 'superlink.log')}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the SuperLink and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def _submit(app: Path, config: Config, home: Path, environment: dict[str, str]) -> None:
    """``flwr run``; its exit status says nothing, so the run's own state is asked afterwards."""
    command = [str(home / PROGRAMS / "flwr"), "run", str(app), CONNECTION, "--stream"]
    command += ["--federation-config", resources(config.data.nodes, os.environ)]
    with (home / "run.log").open("wb") as log:
        subprocess.run(  # noqa: S603  (our own program and arguments)
            command,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=home,
            check=False,
        )


def resources(nodes: int, environment: Mapping[str, str]) -> str:
    """What Ray is told of the machine; a cluster knows itself what its machines have.

    Nodes at work take what `NODE_CPUS` and `NODE_GPUS` say, by default a core and no GPU.

    Raises:
        TransportError: one of them is no such number.
    """
    cpus = _amount(environment, NODE_CPUS, "1", least=1.0)
    gpus = _amount(environment, NODE_GPUS, "0", least=0.0)
    told = {
        "num-supernodes": nodes,
        "client-resources-num-cpus": int(cpus),
        "client-resources-num-gpus": gpus,
        "init-args-log-to-driver": "false",
    }
    if not environment.get(CLUSTER):
        told["init-args-num-cpus"] = os.cpu_count() or 1
    return " ".join(f"{key}={value}" for key, value in told.items())


def _amount(environment: Mapping[str, str], name: str, usual: str, least: float) -> float:
    text = environment.get(name, usual)
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not least <= amount < math.inf:
        raise TransportError(f"{name}={text!r}: give a number of at least {least:g}")
    return amount


def _outcome(config: Config, directory: RunDirectory, store_url: str, log: str) -> Outcome:
    """What the run left in its directory and its store.

    Raises:
        TransportError: it did not end as a run ends.
    """
    snapshot = directory.load_state()
    if snapshot is None or not directory.ledger.exists():
        raise TransportError(f"the run did not finish a round; the end of its log: {log}")
    ledger = Ledger.open(directory.ledger)
    run_id = str(ledger.header["run_id"])
    with open_store(store_url) as store:
        record, covered = store.run(run_id), store.presence(run_id)
    if record.status not in ("finished", "stopped-by-budget"):
        raise TransportError(f"the run is {record.status}; the end of its log: {log}")
    return Outcome(
        run_id=run_id,
        rounds=snapshot.round,
        stopped=record.stop_reason if record.status == "stopped-by-budget" else None,
        spending=spending_of(config, directory),
        model_sha256=digest_of(snapshot.arrays),
        store=store_url,
        covered=covered.words,
        whole=covered.whole,
    )


def _tail(path: Path, lines: int = 12) -> str:
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-lines:])
