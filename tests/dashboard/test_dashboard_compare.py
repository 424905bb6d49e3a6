"""Two batches against each other: statistics, null, mean pictures, blind test, order, map."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.samples.comparison import (
    TRIALS,
    BlindTest,
    mean_pictures,
    p_value,
    same_but_seed,
)
from fedlens.dashboard.samples.order import (
    components,
    find_nearest,
    looks_of,
    oddness,
    shrink,
    to_steps,
)
from fedlens.dashboard.samples.statistics import differences
from fedlens.store import SampleFilter, Store

Opener = Callable[..., AppTest]


def sets(seed: int, *, turned: float = 0.0) -> dict[int, np.ndarray]:
    """Bars that stand, of which a share lies, in three classes."""
    random = np.random.default_rng(seed)
    found = {}
    for number in range(3):
        planes = random.uniform(0, 0.1, (80, 16, 16))
        planes[:, 2:14, 6 + number : 9 + number] += 0.8
        lying = random.random(80) < turned
        planes[lying] = np.rot90(planes[lying], axes=(1, 2))
        found[number] = planes
    return found


def test_a_turn_stands_out_among_the_measures() -> None:
    found = {one.measure: one for one in differences(sets(1), sets(2, turned=0.3))}
    assert found["horizontal strokes"].change == pytest.approx(0.3, abs=0.08)
    assert abs(found["brightness"].change) < 4 * found["brightness"].error
    assert all(one.deviations is None for one in found.values()), "no second seed, no null"


def test_the_null_between_seeds_takes_chance_for_chance() -> None:
    null = [sets(3), sets(4)]
    found = {one.measure: one for one in differences(sets(1), sets(2, turned=0.3), null)}
    assert (found["horizontal strokes"].deviations or 0) > 3
    same = {one.measure: one for one in differences(sets(1), sets(5), null)}
    assert abs(same["horizontal strokes"].deviations or 0) < 3


def test_batches_without_a_class_in_common_have_no_difference() -> None:
    assert differences({0: sets(1)[0]}, {1: sets(1)[1]}) == []


def test_mean_pictures_have_three_rows_and_a_column_a_class() -> None:
    pixels = mean_pictures(sets(1), sets(2))
    assert pixels.shape == (48, 48, 3)


@pytest.mark.parametrize(
    ("chosen", "trials", "p"), [(10, 20, 1.0), (15, 20, 0.0414), (5, 20, 0.0414), (20, 20, 1.9e-6)]
)
def test_the_binomial_p_is_two_sided(chosen: int, trials: int, p: float) -> None:
    assert p_value(chosen, trials) == pytest.approx(p, rel=0.01)


def test_who_sees_the_difference_gets_its_p_and_who_guesses_does_not() -> None:
    seeing, guessing = BlindTest(seed=3), BlindTest(seed=3)
    for _ in range(TRIALS):
        seeing.choose(left=seeing.b_is_left())
        guessing.choose(left=True)
    assert "B is taken for the faulty one" in seeing.verdict()
    assert "within chance" in guessing.verdict()
    seeing.choose(left=True)
    assert seeing.number == TRIALS, "it is over"


def test_an_odd_sample_is_odd_and_alike_ones_are_near() -> None:
    random = np.random.default_rng(1)
    flat = random.normal(0, 0.1, (40, 30))
    flat[7] += 3
    intact, values = np.ones(40, bool), np.clip(128 + 30 * flat, 0, 255).astype(np.uint8)
    found = components(values, intact)
    assert int(oddness(found, [0] * 40).argmax()) == 7
    values[20] = values[3]
    assert find_nearest(components(values, intact), 3)[:2] == [3, 20]


def test_a_batch_is_ranked_and_mapped_whole_and_damaged_pictures_come_last(
    store_at: tuple[str, Store], tmp_path: Path
) -> None:
    store = store_at[1]
    populated.whole_run(store, count=120)
    batch = store.batches("run-1")[-1]
    wanted = SampleFilter(run_id="run-1", batch_id=batch.batch_id)
    page = store.samples(wanted)
    broken = page[9].sample_id
    with sqlite3.connect(tmp_path / "store.db") as direct:
        direct.execute("UPDATE samples SET png = X'78' WHERE sample_id = ?", (broken,))
    direct.close()
    looks = looks_of(store, "now", wanted, 0, 100)
    assert looks.sample_ids == [one.sample_id for one in page[:100]], "a part of it"
    for found in (looks.by_oddness(), looks.by_likeness(page[4].sample_id)):
        assert sorted(found) == looks.sample_ids
        assert found[-1] == broken
    near = looks.by_likeness(page[4].sample_id)
    assert near[0] == page[4].sample_id
    alike = [one.requested_class for one in store.samples_by_id(near[1:6])]
    assert alike[:2] == [4, 4], "as many spokes as it has"
    across, down = to_steps(looks.features[:, :2])
    assert len(across) == len(down) == 100
    assert (min(across), max(across)) == (0, 1000)


@pytest.mark.parametrize("shape", [(1, 16, 16), (1, 28, 28), (3, 32, 32), (3, 64, 64)])
def test_pictures_of_any_size_are_compared_in_bounded_memory(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, shape, dtype=np.uint8)
    short = shrink(pixels)
    assert len(short) <= 1024
    assert short.mean() == pytest.approx(pixels.mean(), abs=1)


def test_two_runs_are_compared(open_page: Opener, store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        config = {"seed": seed, "rounds.count": 4}
        populated.whole_run(store, name, config=config, config_sha256=f"{seed:064x}")
    assert same_but_seed(store.run("a"), store.run("c"))
    app = open_page("compare", run="a", **{"with": "b"})
    assert not app.exception
    assert [box.value for box in app.selectbox if box.label in "AB"] == ["a", "b"]
    assert "Null between seeds from c drawn" in "\n".join(one.value for one in app.caption)
    next(one for one in app.button if one.label.startswith("Begin")).click().run()
    for _ in range(TRIALS):
        next(one for one in app.button if one.label.startswith("These")).click().run()
    assert "trials (p = " in app.success[0].value


def test_one_run_is_compared_with_another_of_its_batches_and_has_no_null(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("compare", run="run-1")
    assert not app.exception and not app.warning
    one, other = [box.options[box.index or 0] for box in app.selectbox if box.label == "Batch"]
    assert one != other
    batch = str(store_at[1].batches("run-1")[-1].batch_id)
    app = open_page("compare", run="run-1", batch=batch, batch2=batch, **{"with": "run-1"})
    assert "the same batch" in app.warning[0].value
    assert "no baseline run" in "\n".join(one.value for one in app.caption)
