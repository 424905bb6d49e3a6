"""Processes come back when they end, and all of them end when they are to."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fedlens.deploy import supervise
from fedlens.deploy.layout import DeployError, ephemeral_folder, state_place
from fedlens.deploy.supervise import Program, Supervisor


def python(name: str, code: str, **more) -> Program:
    return Program(name, [sys.executable, "-c", code], dict(os.environ), **more)


def in_background(supervisor: Supervisor, monkeypatch) -> threading.Thread:
    monkeypatch.setattr(supervise.signal, "signal", lambda *_: None)  # for the main thread alone
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    return thread


def wait_for(what, seconds=20.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_ends_is_started_again_and_its_follower_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.05)
    note = "import os, time; open(r'{}', 'a').write(f'{{os.getpid()}} '); time.sleep({})"
    first, second = tmp_path / "first", tmp_path / "second"
    supervisor = Supervisor(
        [
            python("service", note.format(first, 0.3)),
            python("apps", note.format(second, 600), follows="service"),
        ]
    )
    thread = in_background(supervisor, monkeypatch)
    wait_for(lambda: all(p.exists() and len(p.read_text().split()) >= 3 for p in (first, second)))
    supervisor.stop()
    thread.join(20)
    numbers = [int(word) for path in (first, second) for word in path.read_text().split()]
    assert not thread.is_alive()
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


def test_what_it_started_ends_with_a_process(tmp_path, monkeypatch):
    note = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open(r'{note}', 'w').write(str(child.pid))\ntime.sleep(600)"
    )
    supervisor = Supervisor([python("service", code)])
    thread = in_background(supervisor, monkeypatch)
    wait_for(lambda: note.exists() and note.read_text())
    supervisor.stop()
    thread.join(20)
    state = Path(f"/proc/{note.read_text()}/stat")
    wait_for(lambda: not state.exists() or " Z " in state.read_text())


def test_wrong_use_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(supervise.signal, "signal", lambda *_: None)
    began = time.monotonic()
    assert Supervisor([python("service", "raise SystemExit(2)")]).run() == 2
    assert time.monotonic() - began < 60


@pytest.mark.law("deployment: Flower's state does not outlive it")
def test_state_is_for_its_owner_in_memory_and_gone_afterwards(tmp_path):
    place = state_place(tmp_path, "")
    place.mkdir(mode=0o700)
    (place / "left").write_text("sums of a process that was killed")
    with ephemeral_folder(tmp_path, "") as made:
        assert made == place and list(made.iterdir()) == []
        assert made.stat().st_mode & 0o077 == 0
        (made / "state").write_text("sums")
    assert not place.exists()


def test_a_place_that_another_made_is_not_used(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "state").symlink_to(elsewhere)
    with pytest.raises(DeployError, match="another user"), ephemeral_folder(tmp_path, "state"):
        pass
    assert elsewhere.exists()


WORDS = """
import json, sys, time
print("\033[91mERROR \033[0m:     Flower says", flush=True)
print(json.dumps({"time": "t", "level": "info", "logger": "ours", "message": "ours"}), flush=True)
sys.stderr.write("Traceback\\n")
sys.stderr.flush()
sys.exit(2)
"""


@pytest.mark.parametrize("kind", ["json", ""])
def test_every_line_of_every_program_has_a_time_and_a_form(capfd, monkeypatch, kind):
    monkeypatch.setenv("FEDLENS_LOG", kind)
    program = Program("node", [sys.executable, "-c", WORDS], os.environ)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert Supervisor([program]).run() == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    if kind:
        flower, ours, trace = (json.loads(line) for line in lines)
        assert (flower["level"], flower["logger"]) == ("error", "node")
        assert flower["message"] == "ERROR :     Flower says" and flower["time"].endswith("+00:00")
        assert (ours["time"], ours["logger"]) == ("t", "ours") and trace["message"] == "Traceback"
    else:
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 node: "
        assert all(re.match(stamp, line) for line in lines)
