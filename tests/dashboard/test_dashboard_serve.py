"""Serving: what is refused before a port is opened, and what a running server gives away."""

from __future__ import annotations

import gc
import http.client
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving import TOKEN, start_dashboard, stop_dashboard

from fedlens.cli import main
from fedlens.dashboard.serve import load_libraries, serve
from fedlens.dashboard.widgets.options import DashboardError
from fedlens.store import Store, StoreError, StoreVersionError


@pytest.fixture
def url(store_at: tuple[str, Store]) -> str:
    return store_at[0]


def test_a_taken_port_is_named_with_the_fix(url: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(DashboardError, match=f"port {port} on 127.0.0.1.*--port"):
            serve(url, port=port)


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_port_that_cannot_be_is_named(url: str, port: int) -> None:
    with pytest.raises(DashboardError, match=f"port = {port}"):
        serve(url, port=port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
@pytest.mark.law("access: strangers see the login page only")
def test_other_machines_are_kept_out_by_default(url: str, host: str) -> None:
    with pytest.raises(DashboardError, match="--allow-remote"):
        serve(url, host=host)


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no store at .*absent\.db"):
        serve(str(tmp_path / "absent.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_another_version_is_not_served(
    store_at: tuple[str, Store], tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE fedlens_version SET version_num = 'another'")
    with pytest.raises(StoreVersionError, match="fedlens"):
        serve(store_at[0])


def test_a_weak_token_is_refused(url: str) -> None:
    with pytest.raises(DashboardError, match="at least 16"):
        serve(url, port=0, token="1234")


@pytest.mark.law("access: no secret is stored or logged")
def test_the_token_is_in_no_log_and_the_end_is_quick(url: str, tmp_path: Path) -> None:
    served = start_dashboard(url, tmp_path)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", f"/run?token={TOKEN}", headers={"accept": "text/html"})
    answer = connection.getresponse()
    assert answer.status == 303
    log = stop_dashboard(served)
    assert TOKEN not in log
    assert "Traceback" not in log


BUSY = """
import sys, time
from pathlib import Path
from fedlens.dashboard.faults import jobs
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.serve import load_libraries, serve

sleep = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
jobs.command_of = lambda _: [sys.executable, "-c", sleep, sys.argv[2]]
asked = jobs.Question(RunPlace("r", Path(sys.argv[2]).parent))
serve(sys.argv[1], port=0, announce=lambda _: jobs.Diagnoses().ask(asked, [], 10))
"""


def test_a_server_that_is_ended_leaves_no_diagnosis_behind(url: str, tmp_path: Path) -> None:
    """By SIGTERM, after which no exit handler of Python runs."""
    told = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", BUSY, url, str(told)], cwd=tmp_path) as process:
        for _ in range(400):
            if told.exists() and told.read_text():
                break
            time.sleep(0.05)
        process.terminate()
        process.wait(20)
    number = int(told.read_text())
    for _ in range(40):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"process {number} is still there")


def test_a_random_token_is_announced_once_the_page_answers(url: str, tmp_path: Path) -> None:
    script = "import sys; from fedlens.dashboard.serve import serve; serve(sys.argv[1], port=0)"
    links = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", script, url], stderr=subprocess.PIPE, text=True, cwd=tmp_path
        ) as process:
            assert process.stderr is not None
            links.append(process.stderr.readline().split("token=")[1].strip())
            process.terminate()
    assert min(map(len, links)) >= 43
    assert links[0] != links[1]


def test_after_each_click_libraries_are_not_gone_through_for_garbage() -> None:
    try:
        load_libraries()
        assert gc.get_freeze_count() > 10 * len(gc.get_objects())
    finally:
        gc.unfreeze()


def test_streamlit_is_set_up_to_be_quiet() -> None:
    script = (
        "from fedlens.dashboard.widgets.options import OPTIONS, apply_options; apply_options()\n"
        "from streamlit import config\n"
        "assert all(config.get_option(k) == v for k, v in OPTIONS.items())\n"
        "assert config.get_option('browser.gatherUsageStats') is False\n"
        "assert config.get_option('client.showErrorDetails') == 'type'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_token_comes_from_a_file_and_no_argument(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every account of a machine reads arguments in the list of processes."""
    given = []
    monkeypatch.setattr("fedlens.dashboard.serve.serve", lambda *_, **named: given.append(named))
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    command = ["dashboard", "--store", url, "--token-file", str(path)]
    path.chmod(0o644)
    assert main(command) == 2 and "chmod 600" in capsys.readouterr().err
    path.chmod(0o600)
    assert main(command) == 0 and given[0]["token"] == TOKEN
