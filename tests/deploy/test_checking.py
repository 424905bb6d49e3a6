"""`fedlens deploy check`: one line with its fix for each thing that is wrong."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import threading
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedlens.cli import main
from fedlens.client.contract import FederationContract
from fedlens.client.preparing.intake import Preparation
from fedlens.client.preparing.prepare import prepare
from fedlens.data.formats.formats import open_source
from fedlens.deploy import checking, status
from fedlens.deploy.checking import check_folder, require_startable
from fedlens.deploy.layout import DeployError, read_folder
from fedlens.deploy.services import programs_of
from fedlens.deploy.status import Unreachable, address_of, ask


@contextmanager
def superlink_at(federation: Path, seconds: float, page: bytes = b"{}"):
    """Something on the SuperLink's port whose clock is ``seconds`` ahead."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def date_time_string(self, timestamp=None):
            return formatdate(checking.time.time() + seconds, usegmt=True)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Health)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = federation / "superlink"
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def point_to(folder: Path, port: int) -> None:
    path = folder / "deploy.toml"
    path.write_text(path.read_text().replace("19555", str(port)))


@pytest.fixture
def superlink(federation, free_port) -> Path:
    folder = federation / "superlink"
    point_to(folder, free_port())
    return folder


@pytest.fixture
def node(federation, free_port) -> Path:
    folder = federation / "nodes" / "north"
    path = folder / "deploy.toml"
    path.write_text(path.read_text().replace("9501", str(free_port())))
    (folder / "data").touch(mode=0o600)
    return folder


def test_a_new_folder_has_nothing_wrong(superlink, capsys):
    assert check_folder(superlink) == []
    assert main(["deploy", "check", str(superlink)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_a_port_in_use(superlink, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        path = superlink / "deploy.toml"
        text = path.read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("port"))
        path.write_text(text.replace(line, f"port = {port}"))
        (problem,) = check_folder(superlink)
        assert f"port {port}" in problem and "set another port" in problem
        assert main(["deploy", "start", str(superlink)]) == 2
        assert "set another port" in capsys.readouterr().err


def test_a_full_disk(superlink, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5e6))
    (problem,) = check_folder(superlink)
    assert "5 MB free" in problem


def test_files_that_others_can_read(superlink):
    (superlink / "server.key").chmod(0o644)
    (problem,) = check_folder(superlink)
    assert "chmod go=" in problem
    with pytest.raises(DeployError, match="chmod"):
        require_startable(superlink)


def test_another_flower(superlink, monkeypatch):
    monkeypatch.setattr(checking, "version", lambda _: "1.30.0")
    (problem,) = check_folder(superlink)
    assert "pip install flwr==" in problem


def test_a_superlink_without_nodes_or_operators_or_with_a_wrong_key(superlink):
    (superlink / "operators").unlink()
    (superlink / "nodes" / "north.pub").write_text("junk")
    found = " ".join(check_folder(superlink))
    assert "no OpenSSH public key" in found and "operators is not there" in found
    shutil.rmtree(superlink / "nodes")
    assert "no node's public key" in " ".join(check_folder(superlink))


def test_a_node_of_another_version_or_without_data_or_key(node, federation):
    (node / "data").unlink()
    (node / "node.key").unlink()
    path = node / "deploy.toml"
    text = path.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("code-sha256"))
    path.write_text(text.replace(line, f'code-sha256 = "{"0" * 64}"'))
    found = check_folder(node)
    assert len(found) == 4  # and the SuperLink, which is not started
    for word in ("private key", "own data", "not the agreed one", "does not answer"):
        assert any(word in line for line in found), word


def a_store(folder: Path) -> Path:
    """Six users' records as `fedlens node prepare` would have written them."""
    pictures = folder / "pictures"
    for number in range(6):
        place = pictures / ("cat", "dog")[number % 2] / f"p{number}"
        place.mkdir(parents=True)
        Image.new("L", (16, 16), 40 * number).save(place / "1.png")
    given = {"name": "ward", "classes": ("cat", "dog"), "image": {"side": 16}}
    wanted = Preparation(FederationContract.model_validate(given), b"k" * 32)
    prepare(open_source(pictures), wanted, folder / "store")
    return folder / "store"


def test_a_node_does_not_start_on_a_half_written_or_changed_store(node, tmp_path):
    whole, data = a_store(tmp_path), node / "data"
    data.unlink()
    shutil.copytree(whole, data)
    require_startable(node)
    labels = np.load(data / "labels.npy")
    labels[0] = 1 - labels[0]
    np.save(data / "labels.npy", labels)
    (data / "labels.npy").chmod(0o600)
    for spoil in (lambda: None, (data / "index.npy").unlink, (data / "store.json").unlink):
        spoil()
        problem, silent = check_folder(node)
        assert "does not answer" in silent
        assert str(data) in problem and "prepare" in problem
        with pytest.raises(DeployError, match="prepare"):
            require_startable(node)


@pytest.mark.parametrize(("ahead", "said"), [(3600, "behind"), (-3600, "ahead of"), (5, None)])
def test_a_clock_an_hour_off(node, federation, ahead, said):
    with superlink_at(federation, ahead) as port:
        point_to(node, port)
        found = check_folder(node)
    assert [said in line and "NTP" in line for line in found] == ([True] if said else [])


def test_what_was_started_and_does_not_answer_is_said(node, superlink, federation, monkeypatch):
    """As a process that was stopped, or hangs: its supervisor runs on."""
    monkeypatch.setattr(checking, "running", lambda folder: 1)
    with superlink_at(federation, 0) as port:
        point_to(node, port)
        (problem,) = check_folder(node)
    assert "was started, and nothing answers on port" in problem and "service.log" in problem
    (problem,) = check_folder(superlink)
    assert "was started, and the SuperLink at" in problem and "does not answer" in problem


def test_a_node_that_went_away_is_named_at_the_superlink(superlink, monkeypatch):
    seen = [{"name": "north", "status": "online"}, {"name": "south", "status": "offline"}]
    monkeypatch.setattr(checking, "running", lambda folder: 1)
    monkeypatch.setattr(checking, "ask", lambda *_, **__: {"nodes": seen})
    (problem,) = check_folder(superlink)
    assert problem.startswith("south is offline")


def test_a_population_made_in_the_superlinks_folder_keeps_it_startable(superlink, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(superlink))
    before = os.umask(0o022)
    try:
        terms = ["--unit", "user", "--delta", "1e-5", "--epsilon", "2"]
        assert main(["population", "create", "wards", *terms]) == 0
    finally:
        os.umask(before)
    for made in (superlink / "populations", superlink / "populations" / "wards"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    require_startable(superlink)


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_page_without_end_is_not_read_to_its_end(superlink, federation, monkeypatch):
    monkeypatch.setattr(status, "LONGEST_PAGE", 1000)
    settings = read_folder(superlink)
    with superlink_at(federation, 0, b" " * 10_000 + b"{}") as port:
        address = address_of(superlink, settings.model_copy(update={"port": port}))
        with pytest.raises(Unreachable, match="its answer is over 1000 bytes"):
            ask(address, "/status")


@pytest.fixture
def dead_proxy(free_port, monkeypatch):
    """A proxy that does not answer, as one of a hospital does not for its machines' loopback."""
    place = f"localhost:{free_port()}"
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://me:secret@{place}")
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return place


def test_this_machine_is_asked_without_the_proxy(node, superlink, federation, dead_proxy):
    with superlink_at(federation, 0) as port:
        point_to(node, port)
        assert check_folder(node) == []
        found = read_folder(superlink)
        settings = found.model_copy(update={"port": port})
        assert ask(address_of(superlink, settings), "/health") == {}
    service, apps = programs_of(superlink, found, superlink)
    for program in (service, apps):
        for name in ("NO_PROXY", "no_proxy"):
            assert {"localhost", "127.0.0.1"} <= set(program.environment[name].split(","))


def test_a_proxy_in_the_way_is_named(node, federation, dead_proxy):
    path = node / "deploy.toml"
    path.write_text(path.read_text().replace("localhost:19555", "superlink.example.org:9443"))
    (problem,) = check_folder(node)
    assert f"does not answer through the proxy {dead_proxy} that HTTPS_PROXY names" in problem
    assert "NO_PROXY=superlink.example.org" in problem and "secret" not in problem


def test_a_superlink_of_another_authority(node, federation, tmp_path):
    from fedlens.deploy.certificates import make_authority

    (node / "ca.crt").write_bytes(make_authority("another").certificate)
    with superlink_at(federation, 0) as port:
        point_to(node, port)
        (problem,) = check_folder(node)
    assert "certificate verify failed" in problem


def test_a_folder_of_nothing(tmp_path):
    (problem,) = check_folder(tmp_path)
    assert "deploy init" in problem
