"""Two batches against each other: statistics, null, mean pictures, blind test, order, map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.samples import order as sample_map
from fedlens.dashboard.samples.comparison import (
    TRIALS,
    BlindTest,
    mean_pictures,
    p_value,
    same_but_seed,
)
from fedlens.dashboard.samples.order import (
    COMMON,
    LIKE,
    ODD,
    STORED,
    components,
    find_nearest,
    oddness,
    sort_samples,
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
    assert found["share that lies across"].change == pytest.approx(0.3, abs=0.08)
    assert abs(found["brightness"].change) < 4 * found["brightness"].error
    assert all(one.deviations is None for one in found.values()), "no second seed, no null"


def test_the_null_between_seeds_takes_chance_for_chance() -> None:
    null = [sets(3), sets(4)]
    found = {one.measure: one for one in differences(sets(1), sets(2, turned=0.3), null)}
    assert (found["share that lies across"].deviations or 0) > 3
    same = {one.measure: one for one in differences(sets(1), sets(5), null)}
    assert abs(same["share that lies across"].deviations or 0) < 3


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
    found = components(flat)
    assert int(oddness(found, [0] * 40).argmax()) == 7
    flat[20] = flat[3] + 0.001
    assert find_nearest(components(flat), 3, 2) == [3, 20]


def test_pages_of_samples_are_ordered_and_mapped(store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    populated.whole_run(store)
    page = store.samples(SampleFilter(purpose=store.batches("run-1")[-1].purpose))
    for order in (STORED, ODD, COMMON, LIKE):
        found = sort_samples(page, order, page[4])
        assert sorted(one.sample_id for one in found) == [one.sample_id for one in page]
    assert sort_samples(page, LIKE, page[4])[0] == page[4]
    assert len(sample_map.map_chart(page).to_dict()["datasets"]) == 1


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


def test_one_run_is_compared_with_itself_and_has_no_null(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("compare", run="run-1")
    assert not app.exception
    assert "the same batch" in app.warning[0].value
    assert "no baseline run" in "\n".join(one.value for one in app.caption)
