"""The table of readers in SECURITY holds every reader of the code, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedlens.data.registry import DATASETS

FOLDERS = (
    "accountant", "client", "dashboard", "data", "diagnosis", "fedlens", "foundation", "models",
    "privatizers", "server", "simulations", "store",
)  # fmt: skip
READS = re.compile(
    r"json\.loads?\(|parse_toml\(|tomllib\.loads?\(|np\.load\(|ZipFile\(|tarfile\.open\(|gzip\."
    r"(?:open|GzipFile|decompress)\(|lzma\.decompress\(|load_file\(|safe_open\(|Image\.open\(|"
    r"csv\.(?:reader|DictReader)\(|loadmat\(|dcmread\(|read_array\(|zlib\.decompress|load_pem_|"
    r"load_ssh_|torch\.load\(|export\.load\(|\.read_message\("
)
OWN = (
    "accountant/ledger/officer.py",
    "dashboard/faults/", "dashboard/jobs.py", "dashboard/labelling/students.py",
    "dashboard/samples/embedding.py", "dashboard/samples/whole.py",
    "dashboard/summary/data_card.py",
    "diagnosis/steps.py", "diagnosis/stored_answers.py", "diagnosis/stored_changes.py",
    "fedlens/api/release_budget.py", "fedlens/api/runs.py",
    "fedlens/cli/budget.py", "fedlens/deploy/submitting.py", "foundation/logs.py",
    "server/federation/names.py", "server/round/status.py", "server/run/history.py",
    "simulations/audits/report.py", "simulations/plots/diagnosis.py", "client/node/store.py",
    "client/preparing/index.py",
    "client/preparing/intake.py", "client/preparing/report.py", "data/embedded.py",
    "data/embedded_data/make.py",
    "privatizers/export.py", "store/exporters/", "store/pngs.py", "store/sample_archive.py",
)  # fmt: skip
"""Read what fedlens wrote on the same machine, or only write."""


@pytest.fixture(scope="module")
def rows(repository) -> list[list[str]]:
    text = (repository / "SECURITY.md").read_text(encoding="utf-8")
    part = text.partition("## What comes from elsewhere")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert found and all(len(row) == 5 for row in found)
    return found


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.law("documents: the pages say what the code does")
def test_every_reader_of_the_code_is_in_the_table(repository: Path, rows):
    listed = {name for row in rows for name in named(row[2])}
    assert [name for name in listed if not (repository / name).is_file()] == []
    readers = {
        str(path.relative_to(repository))
        for folder in FOLDERS
        for path in (repository / folder).rglob("*.py")
        if READS.search(path.read_text(encoding="utf-8"))
    }
    missing = [name for name in readers - listed if not name.startswith(OWN)]
    assert sorted(missing) == []


def test_every_format_of_the_registry_is_in_the_table(rows):
    spoken_of = {name for row in rows for name in named(row[0])}
    formats = {name for name in DATASETS if DATASETS[name].format is not None}
    assert formats - spoken_of == set()


def test_every_bound_is_shown_by_a_test_that_is_there(repository: Path, rows):
    for row in rows:
        for test in named(row[4]):
            file, _, function = test.partition("::")
            text = (repository / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, test
