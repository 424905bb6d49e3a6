"""Weights and data are never read by pickle, which runs what a file says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "accountant", "benchmarks", "client", "dashboard", "data", "diagnosis", "fedlens", "foundation",
    "models", "privatizers", "research", "server", "simulations", "store",
)  # fmt: skip
# A program of torch.export: its own file just written, and one that its owner says is trusted.
# CIFAR's Python version: an unpickler that finds stand-ins alone, in a process of its own
TRUSTED = {
    "data/isolated/pickled.py": ["pickle"],
    "privatizers/export.py": ["torch.export.load"],
    "privatizers/exported.py": ["torch.export.load"],
}


def faults_in(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            found += [n for n in names if n.split(".")[0] in ("pickle", "joblib", "dill", "shelve")]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            safe = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if called == "torch.export.load":
                found.append(called)
            if called == "torch.load" and safe.get("weights_only") != "True":
                found.append(called)
            if safe.get("allow_pickle", "False") != "False":
                found.append(f"{called}(allow_pickle)")
    return found


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_nothing_is_unpickled():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    found = {str(p.relative_to(ROOT)): faults_in(p.read_text("utf-8")) for p in paths}
    assert {path: what for path, what in found.items() if what} == TRUSTED


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x')",
        "torch.load('x', weights_only=False)",
        "torch.export.load('x')",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
    ],
)
def test_it_would_be_found(text):
    assert faults_in(text)


def test_weights_alone_may_be_loaded():
    assert not faults_in("torch.load('x', weights_only=True)\nnp.load('x', allow_pickle=False)")
