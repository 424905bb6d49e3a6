"""Contact sheets: every pixel of every sample, what lacks told from black, ε rounded up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlens.server.run.directory import RunDirectory
from fedlens.simulations import engine
from fedlens.simulations.plots import run as plots
from fedlens.simulations.plots.beside import LACKING, Sheet, draw_beside
from fedlens.store import BatchRecord, LedgerRow, RunRecord, SampleRecord, open_store


def enlarged_parts(picture: np.ndarray, image: np.ndarray) -> bool:
    """Whether an image is somewhere in the picture, each pixel a block of equal size."""
    height, width = image.shape[:2]
    for factor in range(1, 30):
        large = image.repeat(factor, axis=0).repeat(factor, axis=1)
        if large.shape[0] > picture.shape[0] or large.shape[1] > picture.shape[1]:
            return False
        corners = np.argwhere((picture[: -(height * factor) or None] == image[0, 0]).all(-1))
        for y, x in corners:
            if np.array_equal(picture[y : y + height * factor, x : x + width * factor], large):
                return True
    return False


@pytest.mark.parametrize("side", [16, 28, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_sheets_side_by_side_leave_no_pixel_out(tmp_path: Path, side: int, channels: int) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (10, channels, side, side), dtype=np.uint8)
    sheet = Sheet("run: faithful", images, np.arange(10), "SYNTHETIC · " + "words " * 40)
    draw_beside([sheet, sheet], rows=1, path=tmp_path / "beside.png")
    with Image.open(tmp_path / "beside.png") as opened:
        picture = np.asarray(opened.convert("RGB"))
    for image in images[[0, 4, 9]]:
        shown = np.broadcast_to(np.moveaxis(image, 0, 2), (side, side, 3))
        assert enlarged_parts(picture, shown)


def test_where_a_sample_lacks_there_is_no_black_one(tmp_path: Path) -> None:
    images = np.full((3, 1, 28, 28), 255, np.uint8)
    sheet = Sheet("one lacks", images, np.array([0, 0, 1]), "SYNTHETIC")
    draw_beside([sheet], rows=2, path=tmp_path / "beside.png")
    with Image.open(tmp_path / "beside.png") as opened:
        picture = np.asarray(opened.convert("RGB"))
    assert not (picture == 0).all(-1).any()
    assert (picture == LACKING).all(-1).any()


def test_a_round_s_sheet_leaves_the_run_s_own_and_its_figures_are_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions: list[str] = []
    draw = plots.contact_sheet
    monkeypatch.setattr(
        plots, "contact_sheet", lambda *a, **k: (captions.append(k["caption"]), draw(*a, **k))
    )
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    with open_store(tmp_path / "store.db", create=True) as store:
        store.create_run(
            RunRecord(
                run_id="run", name="run", config={}, config_sha256="0" * 64, data_name="embedded",
                unit="user", users=9, nodes=1, rounds_planned=1, private=True, guarantee="All.",
            )
        )  # fmt: skip
        row = LedgerRow(run_id="run", index=0, round=1, event={}, purpose="x", entry_hash="1" * 64)
        store.record_progress([row])
        for seed, purpose in enumerate(("curated", "strip")):
            store.add_batch(
                BatchRecord(
                    run_id="run",
                    round=1,
                    ledger_index=0,
                    purpose=purpose,
                    seed=seed,
                    count=1,
                    checkpoint_sha256="2" * 64,
                    dp_epsilon=1.2341,
                    delta_dp=1e-5,
                    bdp_as_published=1.0,
                    bdp_corrected=0.45671,
                    bdp_sound=1.0,
                    delta_bdp=1e-10,
                    private=True,
                    provenance="SYNTHETIC",
                ),
                [
                    SampleRecord.from_pixels(
                        position=0, requested_class=0, pixels=np.zeros((1, 16, 16), np.uint8)
                    )
                ],
            )
        own = engine.draw_sheet(store, directory, "run")
        others = {
            engine.draw_sheet(store, directory, "run", purpose="strip"),
            engine.draw_sheet(store, directory, "run", purpose="strip", round_number=1),
            engine.draw_sheet(store, directory, "run", round_number=1),
        }
    assert Path(own).name == "contact-sheet.png"
    assert {Path(other).name for other in others} == {
        "strip.png",
        "strip-round-1.png",
        "curated-round-1.png",
    }
    assert all("DP ε=1.24 (" in caption and "ε=0.457 (" in caption for caption in captions)
