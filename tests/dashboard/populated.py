"""Stores to look at: runs, rounds and small drawn pictures, all through the store's own face."""

from __future__ import annotations

import atexit
import io
import math
import shutil
import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.store import (
    BatchRecord,
    LabelRecord,
    LedgerRow,
    ProjectRecord,
    ReleaseRow,
    RoundRecord,
    RunRecord,
    SampleFilter,
    SampleRecord,
    Store,
    open_store,
)

MOMENT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
CLASSES = 10
LABELS = (
    *(LabelRecord(key=str(c), name=f"class {c}") for c in range(CLASSES)),
    LabelRecord(key="q", name="unknown class", kind="unknown"),
    LabelRecord(key="x", name="artefact", kind="artefact"),
)


def picture(class_: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """A ring with as many spokes as the class says, slightly turned; uint8 [1, 28, 28]."""
    y, x = np.mgrid[-13.5:14.5, -13.5:14.5]
    radius, angle = np.hypot(x, y), np.arctan2(y, x) + random.normal(0, 0.15)
    ring = np.exp(-((radius - random.uniform(9, 11)) ** 2) / 3)
    spokes = np.cos(class_ * angle / 2) ** 12 * (radius < 10) if class_ else np.zeros_like(x)
    light = 255 * np.clip(np.maximum(ring, spokes) + random.normal(0, 0.06, x.shape), 0, 1)
    return light.astype(np.uint8)[None]


def samples(count: int, seed: int, *, labelled: bool = True) -> list[SampleRecord]:
    """Pictures of the classes in turn, requested for these or for none."""
    random = np.random.default_rng(seed)
    return [
        SampleRecord.from_pixels(
            position=i,
            requested_class=i % CLASSES if labelled else None,
            pixels=picture(i % CLASSES, random),
        )
        for i in range(count)
    ]


def spent(round_: int, private: bool) -> dict[str, float]:
    """Figures of about the right shape; infinite where nothing is guaranteed."""
    share = math.sqrt(round_) if private else math.inf
    return {
        "dp_epsilon": 4.0 * share,
        "delta_dp": 1e-5,
        "bdp_as_published": 0.3 * share,
        "bdp_corrected": 0.9 * share,
        "bdp_sound": 1.1 * share,
        "delta_bdp": 1e-10,
    }


def add_run(store: Store, run_id: str = "run-1", **changes: Any) -> None:
    """A run without any round."""
    private = changes.get("private", True)
    fields: dict[str, Any] = {
        "run_id": run_id,
        "name": f"{run_id} drawn",
        "status": "finished",
        "config": {"privacy.epsilon_budget": 9.0, "rounds.count": 4},
        "config_sha256": "c0ffee" * 8,
        "data_name": "embedded",
        "unit": "user",
        "users": 1000,
        "nodes": 2,
        "rounds_planned": 4,
        "private": private,
        "guarantee": "Each user is protected with (8, 1e-05)-differential privacy."
        if private
        else "Nothing is guaranteed to anybody.",
        "created_at": MOMENT.date(),
    }
    store.create_run(RunRecord(**fields | changes))


def add_round(
    store: Store, run_id: str, round_: int, *, private: bool = True, labelled: bool = True
) -> None:
    """A round with its ledger row, metrics and strip."""
    event = {
        "unit": "user",
        "sampling_rate": 0.1,
        "noise_multiplier": 2.0 if private else 0.0,
        "clipping_norm": 0.35,
        "count": 1,
    }
    store.record_progress(
        ledger=[
            LedgerRow(
                run_id=run_id,
                index=round_ - 1,
                round=round_,
                event=event,
                purpose="critic update",
                entry_hash=f"{round_:064x}",
                created_at=MOMENT.date(),
            )
        ]
    )
    status = "lost" if round_ == 2 else "applied"
    store.record_progress(
        releases=[ReleaseRow(run_id=run_id, ledger_index=round_ - 1, round=round_, status=status)]
    )
    metrics = {"generator_loss": 2.0 / round_, "critic_norm": 1.0 + 0.1 * round_}
    store.record_progress(
        rounds=[
            RoundRecord(
                run_id=run_id,
                dp_method="rdp",
                round=round_,
                metrics=metrics,
                **spent(round_, private),
            )
        ]
    )
    add_batch(store, run_id, round_, "strip", 40, private=private, labelled=labelled)


def add_batch(
    store: Store,
    run_id: str,
    round_: int,
    purpose: str,
    count: int,
    *,
    private: bool = True,
    labelled: bool = True,
    **changes: Any,
) -> int:
    """A batch of pictures drawn after a round."""
    fields: dict[str, Any] = {"purpose": purpose, **spent(round_, private), **changes}
    record = BatchRecord(
        run_id=run_id,
        round=round_,
        ledger_index=round_ - 1,
        checkpoint_sha256="9f3a" * 16,
        seed=17,
        count=count,
        private=private,
        provenance="SYNTHETIC" if private else "SYNTHETIC · NOT PRIVATE",
        **fields,
    )
    return store.add_batch(record, samples(count, seed=round_, labelled=labelled))


def whole_run(
    store: Store,
    run_id: str = "run-1",
    *,
    private: bool = True,
    count: int = 60,
    labelled: bool = True,
    **changes: Any,
) -> None:
    """A run with three rounds and a release batch."""
    add_run(store, run_id, private=private, **changes)
    for round_ in (1, 2, 3):
        add_round(store, run_id, round_, private=private, labelled=labelled)
    add_batch(store, run_id, 3, "curated", count, private=private, labelled=labelled)


def add_project(store: Store, run_id: str = "run-1", **changes: Any) -> int:
    """A project with a label a class, served in stored order."""
    fields: dict[str, Any] = {"name": f"labels of {run_id}", "run_id": run_id, "labels": LABELS}
    return store.create_project(ProjectRecord(**fields | changes))


def of_run(run_id: str) -> SampleFilter:
    """All samples of a run."""
    return SampleFilter(run_id=run_id)


def pixels(png: bytes) -> list[list[int]]:
    """The grey values of a PNG."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("L")).tolist()


def shrunk(png: bytes, factor: int) -> list[list[int]]:
    """The grey values of a PNG enlarged by a factor, each block checked to be of one value."""
    large = np.asarray(pixels(png))
    small = large[::factor, ::factor]
    assert (large == np.kron(small, np.ones((factor, factor), int))).all()
    return small.tolist()


@cache
def _template() -> Path:
    """An empty store, made once: migrations take longer than a test."""
    path = Path(tempfile.mkdtemp(prefix="fedlens-")) / "store.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    open_store(path, create=True).close()
    return path


def new_store(folder: Path) -> tuple[str, Store]:
    """An empty store in a folder, with its URL."""
    shutil.copy(_template(), folder / "store.db")
    url = f"sqlite:///{folder / 'store.db'}"
    return url, open_store(url)
