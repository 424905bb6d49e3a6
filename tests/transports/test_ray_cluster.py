"""A run over a Ray cluster: a head that computes nothing, and two workers on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from test_ray import CONFIG

from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.transports.ray import CLUSTER, resources, train_through_ray

START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
WHERE = """
import json, ray
from ray._private.state import actors
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
there = [one for one in actors().values() if "ClientAppActor" in one["ActorClassName"]]
print(json.dumps(sorted({{one["Address"]["NodeID"] for one in there}})))
"""
LONGEST = 180


def test_a_cluster_is_not_told_how_many_cores_it_has():
    assert "init-args-num-cpus" in resources(2, {})
    told = resources(2, {CLUSTER: "127.0.0.1:6379", "FEDLENS_NODE_CPUS": "2"})
    assert "init-args-num-cpus" not in told and "client-resources-num-cpus=2" in told


@pytest.fixture
def cluster():
    """Its address. All that it started is gone at the end, and nothing else is touched."""
    pytest.importorskip("ray")
    folder = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))  # names of sockets must be short
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, started = f"127.0.0.1:{port}", []
    log = (folder / "log").open("wb")
    environment = {
        **os.environ,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # what it calls a cluster on loopback
        "RAY_worker_register_timeout_seconds": str(LONGEST),
    }

    def start(*words):
        command = [sys.executable, "-c", START, "start", "--block", "--disable-usage-stats", *words]
        started.append(
            subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        )

    def begun(ready, *commands):
        """Start them, and again what gave up: Ray waits 30 seconds for itself and no longer."""
        running = {}

        def all_ready():
            for place, words in enumerate(commands):
                if place not in running or running[place].poll() is not None:
                    start(*words)
                    running[place] = started[-1]
            return ready()

        wait_until(all_ready, folder)

    try:
        head = ("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
        local = "--node-ip-address=127.0.0.1"
        begun(lambda: listening(port), (*head, f"--temp-dir={folder}", local))
        worker = (f"--address={address}", "--num-cpus=1", local)
        begun(lambda: raylets(folder) >= 3, worker, worker)
        yield address
    finally:  # where it does not start, too
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        for number in ours(folder):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(ready, folder):
    end = time.monotonic() + LONGEST
    while not ready():
        said = (folder / "log").read_text(errors="replace")[-2000:]
        assert time.monotonic() < end, said
        time.sleep(0.3)


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def raylets(folder):
    """How many there are that answer; one that gave up leaves its socket behind."""
    return sum(map(answers, folder.glob("session_2*/sockets/raylet*")))


def answers(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def ours(folder):
    """The processes that name the cluster's folder in their command."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(int(place.parent.name))
    return found


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_over_two_workers_makes_the_model_of_one_process(tmp_path, cluster, monkeypatch):
    config, outcomes = Config().updated(CONFIG), {}
    monkeypatch.setenv(CLUSTER, cluster)
    for name, trainer in (("in-process", train_in_process), ("cluster", train_through_ray)):
        directory = RunDirectory.create(tmp_path / name, config)
        outcomes[name] = trainer(config, directory, directory.default_store, None)
    assert outcomes["cluster"].rounds == config.planned["critic"].rounds
    assert outcomes["cluster"].model_sha256 == outcomes["in-process"].model_sha256
    found = subprocess.run(
        [sys.executable, "-c", WHERE.format(address=cluster)],
        check=True, capture_output=True, text=True, timeout=LONGEST,
    )  # fmt: skip
    assert len(json.loads(found.stdout.splitlines()[-1])) == 2, "each worker had nodes"
