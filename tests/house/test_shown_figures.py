"""No figure of privacy is shown smaller than it is, wherever it is written."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.server.learning.pretrained_filter import PretrainedFilter
from fedlens.store.exporters.samples import LabelledSample, statements
from fedlens.store.records import RunRecord, StoredBatch
from fedlens.store.sample_archive import archive

pytestmark = pytest.mark.law("5: figures are rounded up")

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("accountant", "client", "dashboard", "data", "diagnosis", "examples", "fedlens", "server"),
    *("simulations", "store"),
)
ROUNDED = re.compile(r"\{(?!shown\()[^{}]*(?:epsilon|\bspent|bdp_)[^{}:]*:[,]?\.\d+[efg]\}")
"""A figure put into a text by a format, which rounds to the nearest number."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_text_rounds_an_epsilon_to_the_nearest_number(folder):
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if ROUNDED.search(line)
    ]
    assert not found


def told(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[εn] (?:= )?(\d+\.\d+)", text)]


def test_an_exported_batch_promises_no_less_than_was_spent():
    batch = StoredBatch(
        batch_id=1, created_at=date(2026, 3, 1), run_id="r", round=1, ledger_index=0,
        purpose="curated", checkpoint_sha256="c", seed=1, count=0, private=True,
        dp_epsilon=2.00049, delta_dp=1e-5, bdp_as_published=1.0, bdp_corrected=1.00049,
        bdp_sound=2.00049, delta_bdp=1e-10, provenance="SYNTHETIC",
    )  # fmt: skip
    run = cast(RunRecord, SimpleNamespace(guarantee="guaranteed", class_names=()))
    with zipfile.ZipFile(io.BytesIO(archive(batch, [], run))) as file:
        text = " ".join(file.read("README.txt").decode().split())
    assert told(text) == [2.001, 1.001]


def test_exported_labels_promise_no_less_than_was_spent():
    sample = LabelledSample(
        sample_id=1, run_id="r", round=1, requested_class=0, provenance="SYNTHETIC", sha256="s",
        png=b"", label="a", kind="class", annotator="x", created_at=date(2026, 3, 1),
        dp_epsilon=2.00049, delta_dp=1e-5, bayesian_epsilon=1.00049, delta_bayesian=1e-10,
    )  # fmt: skip
    assert told(statements([sample])) == [2.001, 1.001]


def test_what_a_filter_cost_is_told_no_smaller_than_it_was():
    kept = PretrainedFilter(np.zeros(1), PriorReleases("r", "h", ()), 2.00049, 1e-5)
    assert told(kept.cost) == [2.01]
