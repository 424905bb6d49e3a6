"""The recipes for auditors in docs/reference/ledger.md work, and catch what they should."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from fedlens.accountant.account import Account
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian
from fedlens.accountant.ledger.chain import _ENTRY_KEYS
from fedlens.accountant.ledger.export import export_of
from fedlens.accountant.ledger.ledger import Ledger

POISSON = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)
EVERYBODY = SubsampledGaussian("user", "none", "add-remove", 1.0, 8.0, 0.35)
RELEASE = GaussianRelease("user", "add-remove", 1.0, 9.0, 2, "clàss counts")


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs" / "reference" / "ledger.md").read_text()


@pytest.fixture(scope="module")
def recipes(page):
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.jsonl", {"run_id": "abc", "name": "Ü"})
    for number, event in enumerate([POISSON] * 30 + [EVERYBODY, RELEASE], start=1):
        ledger.append(event, round=number, purpose="training round", evidence_digest=None)
    return ledger


def python(code, path):
    command = [sys.executable, "-I", "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.law("documents: the pages say what the code does")
def test_the_recipe_finds_a_good_chain_good(recipes, ledger):
    done = python(recipes[0], ledger.path)
    assert (done.returncode, done.stdout) == (0, f"32 entries, head {ledger.head}\n")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda x: [*x[:4], x[4].replace(b"2.0", b"9.0"), *x[5:]], 5),
        (lambda x: [*x[:4], *x[5:]], 5),
        (lambda x: [*x[:5], x[4], *x[5:]], 6),
        (lambda x: [*x[:4], x[5], x[4], *x[6:]], 5),
        (lambda x: [x[0].replace(b"abc", b"abd"), *x[1:]], 1),
    ],
)
def test_the_recipe_names_the_line_that_was_tampered_with(recipes, ledger, change, line):
    lines = change(ledger.path.read_bytes().splitlines(keepends=True))
    ledger.path.write_bytes(b"".join(lines))
    done = python(recipes[0], ledger.path)
    assert done.returncode == 1 and f"line {line} " in done.stderr


def test_one_line_by_hand(page, ledger):
    (command,) = re.findall(r"```bash\n(sed .*?)\n```", page, re.DOTALL)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ledger.path.parent
    )
    assert done.stdout.split()[0] == ledger.entries[1].hash


def test_the_figure_is_recomputed_from_an_export_alone(recipes, ledger, tmp_path):
    account = Account(total_rounds=40, delta_dp=1e-5, delta_bdp=1e-10)
    for entry in ledger.entries[:31]:
        account.charge(entry.event, None)
    shorter = Ledger.create(tmp_path / "shorter.jsonl", {})
    for entry in ledger.entries[:31]:
        shorter.append(entry.event, round=1, purpose="", evidence_digest=None)
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export_of(shorter, account.spending(), 1000, None)))
    done = python(recipes[1], path)
    assert done.returncode == 0, done.stderr
    ours, theirs = account.spending().dp_epsilon, float(done.stdout)
    assert ours <= theirs * (1 + 1e-9) and theirs < 1.3 * ours


def test_every_key_of_a_line_is_documented(page, ledger):
    for key in _ENTRY_KEYS | {"run"} | set(POISSON.to_json()) | set(RELEASE.to_json()):
        assert f"`{key}`" in page, key
