"""Logs as text or JSON, once a line however often they are set up."""

from __future__ import annotations

import json
import logging
import logging.handlers
import subprocess
import sys

import pytest

from fedlens.foundation.code_digest import NODE_PACKAGES, CodeError, code_sha256
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.logs import FORMAT_VARIABLE, set_up_logs


def test_a_line_is_one_json_object(monkeypatch, capsys):
    monkeypatch.setenv(FORMAT_VARIABLE, "json")
    set_up_logs()
    set_up_logs()
    try:
        int("why")
    except ValueError:
        logging.getLogger("fedlens.server.somewhere").exception("round %d\nwas %s", 3, "lost")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found["message"] == "round 3\nwas lost" and found["level"] == "error"
    assert "ValueError: invalid literal" in found["trace"] and found["time"].endswith("+00:00")


def test_text_is_the_default_and_other_packages_are_left_alone(monkeypatch, capsys):
    monkeypatch.delenv(FORMAT_VARIABLE, raising=False)
    set_up_logs()
    logging.getLogger("fedlens.client.app").info("hello")
    logging.getLogger("elsewhere").info("not ours")
    assert capsys.readouterr().err == "INFO fedlens.client.app: hello\n"


def test_an_operators_mistake_has_no_trace_in_flowers_line():
    """As Flower logs it where an app raises it; what is a bug keeps its trace."""
    set_up_logs()
    flower, found = logging.getLogger("flwr"), logging.handlers.BufferingHandler(10)
    flower.addHandler(found)
    try:
        for error in (WrongUse("x"), ValueError("y")):
            flower.error("%s raised an exception", "ServerApp", exc_info=error)
    finally:
        flower.removeHandler(found)
    ours, bug = found.buffer
    assert not ours.exc_info and bug.exc_info


def test_the_codes_hash_is_of_every_file_and_name(tmp_path, monkeypatch):
    assert code_sha256() == code_sha256(tuple(reversed(NODE_PACKAGES)))
    package = tmp_path / "somecode"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = code_sha256(("somecode",))
    (package / "a.py").write_text("x = 2\n")
    second = code_sha256(("somecode",))
    (package / "a.py").rename(package / "b.py")
    assert len({first, second, code_sha256(("somecode",))}) == 3
    with pytest.raises(CodeError, match="nowhere"):
        code_sha256(("nowhere",))


NODE_MODULES = """
import importlib, pkgutil, sys
import fedlens.client.app
import fedlens.deploy.services
import fedlens.deploy.supernode
for package in ("client", "data", "privatizers", "models", "accountant", "foundation"):
    folder = importlib.import_module("fedlens." + package).__path__
    for found in pkgutil.walk_packages(folder, f"fedlens.{package}."):
        importlib.import_module(found.name)
ours = [name for name in sys.modules if name.split(".")[0] == "fedlens"]
print(*sorted({".".join(name.split(".")[:2]) for name in ours}))
"""


def test_the_codes_hash_covers_all_that_a_nodes_processes_import(repository):
    command = [sys.executable, "-c", NODE_MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(NODE_PACKAGES)
