"""Pictures are what the generator made: each pixel, of this run, with its kind beside it."""

from __future__ import annotations

import base64
import io
import re
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import populated
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest
from test_dashboard_diagnosis import page_text

from fedlens.dashboard.samples.comparison import Side
from fedlens.dashboard.samples.images import to_png
from fedlens.dashboard.summary.audits import build_audit_table
from fedlens.dashboard.summary.charts import curve_frame, epsilon_frame
from fedlens.dashboard.summary.privacy import delta_text
from fedlens.dashboard.views import review
from fedlens.dashboard.widgets.markup import picture, size_of, whole_factor
from fedlens.store import (
    Annotation,
    AuditRecord,
    BatchRecord,
    RoundRecord,
    SampleFilter,
    SampleRecord,
    Store,
)

Opener = Callable[..., AppTest]


def drawn(app: AppTest) -> list[tuple[int, int, bytes]]:
    """Width, height and PNG of each picture within the page's HTML."""
    found = re.findall(
        r'<img class="px"[^>]* width="(\d+)" height="(\d+)" src="data:image/png;base64,([^"]+)"',
        " ".join(getattr(one.proto, "body", "") for one in app.main if hasattr(one, "proto")),
    )
    return [(int(w), int(h), base64.b64decode(png)) for w, h, png in found]


def large_run(store: Store, side: int, run_id: str = "run-1", seed: int = 0) -> None:
    """A run whose samples have a side of so many pixels."""
    populated.add_run(store, run_id)
    populated.add_round(store, run_id, 1)
    random = np.random.default_rng(seed)
    record = BatchRecord(
        run_id=run_id, round=1, ledger_index=0, purpose="faithful", checkpoint_sha256="a" * 64,
        seed=3, count=40, private=True, provenance="SYNTHETIC · FAITHFUL",
        **populated.spent(1, private=True),
    )  # fmt: skip
    store.add_batch(
        record,
        [
            SampleRecord.from_pixels(
                position=place,
                requested_class=place % 10,
                pixels=random.integers(0, 256, (3, side, side), dtype=np.uint8),
            )
            for place in range(40)
        ],
    )


@pytest.mark.parametrize("side", [16, 28, 32, 48, 64])
def test_samples_are_enlarged_by_whole_numbers_alone(side: int) -> None:
    for wanted in (28, 40, 56, 64, 112):
        assert whole_factor(side, side, wanted) in range(1, 8)
    png = to_png(np.zeros((side, side), np.uint8))
    assert size_of(png) == (side, side)
    [(width, height)] = re.findall(
        r'width="(\d+)" height="(\d+)"', picture(base64.b64encode(png).decode(), "x")
    )
    assert int(width) == int(height)
    assert int(width) % side == 0
    assert int(width) >= side


def test_what_is_no_png_has_no_size() -> None:
    assert "width" not in picture("", "x") + picture("?", "x") + picture("AAAA", "x")


@pytest.mark.parametrize("side", [16, 28, 64])
def test_a_run_s_card_shows_all_pixels_and_their_kind(
    open_page: Opener, store_at: tuple[str, Store], side: int
) -> None:
    large_run(store_at[1], side)
    app = open_page("runs")
    [(width, height, png)] = drawn(app)
    whole = size_of(png)
    assert width % whole[0] == 0
    assert height % whole[1] == 0
    assert width <= 360
    assert "SYNTHETIC · FAITHFUL" in page_text(app)
    assert "to look for faults in" in page_text(app)


def test_a_store_in_the_place_of_another_shows_its_own_pictures(
    open_page: Opener, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    """``simulate --overwrite`` beside an open dashboard: batches count from 1 again."""
    large_run(store_at[1], 28, "first", seed=1)
    [(_, _, before)] = drawn(open_page("runs"))
    (tmp_path / "other").mkdir()
    _, other = populated.new_store(tmp_path / "other")
    with other:
        large_run(other, 28, "second", seed=2)
        batches = [b for b in other.batches("second") if b.purpose == "faithful"]
        made = other.samples(SampleFilter(batch_id=batches[0].batch_id))
        planes = Side(other.run("second"), batches[0])
    for file in list(tmp_path.glob("store.db*")):
        file.rename(tmp_path / f"aside-{file.name}")
    (tmp_path / "other" / "store.db").replace(tmp_path / "store.db")
    [(_, _, after)] = drawn(open_page("runs"))
    assert before != after
    shown = np.asarray(Image.open(io.BytesIO(after)))[:28, :28]
    first = next(one for one in made if one.requested_class == 0)
    assert np.array_equal(shown, np.asarray(Image.open(io.BytesIO(first.png))))
    assert len(planes.planes()) == 10


def test_batches_of_all_kinds_say_that_they_are_mixed(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("samples", batch="all")
    assert "all kinds together" in page_text(app)
    [batch, *_] = store_at[1].batches("run-1")
    app = open_page("samples", batch=str(batch.batch_id))
    assert "all kinds together" not in page_text(app)


def test_a_comparison_says_what_it_does_and_warns_of_both_runs(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.whole_run(store, "safe")
    populated.whole_run(store, "bare", private=False)
    app = open_page("compare", run="safe", **{"with": "bare"})
    assert "3 times as strong" in page_text(app)
    assert [one.value for one in app.error if "NOT PRIVATE" in one.value]


def damage(path: Path, sample_id: int, change: Callable[[bytes], bytes]) -> None:
    with sqlite3.connect(path) as direct:
        [png] = direct.execute(
            "SELECT png FROM samples WHERE sample_id = ?", (sample_id,)
        ).fetchone()
        direct.execute("UPDATE samples SET png = ? WHERE sample_id = ?", (change(png), sample_id))
    direct.close()


def repainted(png: bytes) -> bytes:
    """A whole PNG of other pixels."""
    return to_png(255 - np.asarray(Image.open(io.BytesIO(png))))


def cut(png: bytes) -> bytes:
    return png[:-30]


def flipped(png: bytes) -> bytes:
    at = png.index(b"IDAT") + 12
    return png[:at] + bytes([png[at] ^ 255]) + png[at + 1 :]


@pytest.mark.parametrize("change", [repainted, cut, flipped])
@pytest.mark.parametrize("page", ["runs", "run", "compare"])
def test_a_damaged_picture_is_named_and_takes_no_page_away(
    open_page: Opener,
    store_at: tuple[str, Store],
    tmp_path: Path,
    page: str,
    change: Callable[[bytes], bytes],
) -> None:
    populated.whole_run(store_at[1])
    batch = "strip" if page == "run" else "curated"
    of_batch = [b for b in store_at[1].batches("run-1") if b.purpose == batch][-1]
    [first, *_] = store_at[1].samples(SampleFilter(batch_id=of_batch.batch_id), limit=1)
    damage(tmp_path / "store.db", first.sample_id, change)
    app = open_page(page)
    assert not app.error
    said = [one.value for one in app.warning if "Damaged in the store" in one.value]
    assert said
    assert f"no. {first.sample_id})" in said[0]


def test_figures_under_the_pointer_are_rounded_up() -> None:
    record = RoundRecord(
        run_id="run", round=1, metrics={}, dp_method="rdp", dp_epsilon=1.2341, delta_dp=1e-5,
        bdp_as_published=0.12341, bdp_corrected=0.5, bdp_sound=1.0001, delta_bdp=1e-10,
        percentiles={"0.9": 1.2341},
    )  # fmt: skip
    assert list(epsilon_frame([record])["said"]) == ["1.24", "1.01", "0.5", "0.124"]
    assert list(curve_frame(record, 1000)["said"]) == ["1.24"]
    assert float(delta_text(1.2341e-05)) >= 1.2341e-05
    assert delta_text(1e-05) == "1e-05"


def test_agreement_of_a_part_says_so(
    open_page: Opener, store_at: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at[1]
    populated.whole_run(store)
    project = populated.add_project(store)
    label = store.labels(project)[0].label_id
    for user in ("ann", "bob"):
        number = store.ensure_user(user)
        for sample in store.queue(project, number, 6):
            store.annotate(
                Annotation(
                    client_uuid=f"{user}{sample.sample_id}",
                    project_id=project,
                    sample_id=sample.sample_id,
                    user_id=number,
                    label_id=label,
                )
            )
    whole = page_text(open_page("review"))
    assert "Agreement is of" not in whole
    monkeypatch.setattr(review, "MOST_COMPARED", 6)
    assert "Agreement is of" in page_text(open_page("review"))


def test_the_results_page_shows_all_pixels(open_page: Opener, store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    large_run(store, 64)
    project = populated.add_project(store, purpose="faithful")
    user, label = store.ensure_user("ann"), store.labels(project)[0].label_id
    queued = store.queue(project, user, 3)
    for sample in queued:
        answer = Annotation(
            client_uuid=str(sample.sample_id), project_id=project, sample_id=sample.sample_id,
            user_id=user, label_id=label,
        )  # fmt: skip
        store.annotate(answer)
    rows = range(len({sample.requested_class for sample in queued}))
    shown = [
        each
        for row in rows  # the cell of each requested class under the first label
        for each in drawn(open_page("results", project=str(project), cell=f"{row}-0"))
    ]
    assert [(width, height) for width, height, _ in shown] == [(64, 64)] * 3
    assert len({zlib.crc32(png) for _, _, png in shown}) == 3


def test_what_leaks_at_least_is_rounded_down() -> None:
    audit = AuditRecord(
        run_id="run", kind="one-run", claimed_epsilon=1.2341, delta=1e-5, lower_bound=1.2399,
        estimate=None, cap=2.2341, verdict="nothing-found", words="Audited: x.",
    )  # fmt: skip
    [row] = build_audit_table([audit]).to_dict("records")
    assert row["ε at least"] == "1.23"
    assert row["Claimed ε (δ)"] == "1.24 (1e-05)"
    assert row["Could show at most"] == "2.24"
