"""Pictures, label sets, charts and grid data, each checked by itself."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import populated
import pytest
from PIL import Image

from fedlens.dashboard.labelling.project_form import RESERVED, default_labels, read_labels
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.progress_strip import arrange_strip
from fedlens.dashboard.summary import charts, overlay
from fedlens.dashboard.summary import charts as percentiles
from fedlens.dashboard.summary.privacy import epsilon_text, figures
from fedlens.dashboard.views.run import about
from fedlens.store import RoundRecord, RunRecord, SampleFilter, Store, StoredSample, StoreError


def pixels_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def a_round(round_: int, private: bool = True) -> RoundRecord:
    return RoundRecord(
        run_id="r",
        dp_method="rdp",
        round=round_,
        metrics={"loss": 1.0 / round_, "broken": math.nan},
        **populated.spent(round_, private),
    )


@pytest.mark.law("7: pixels survive storage and display")
def test_enlarging_repeats_pixels_and_invents_none() -> None:
    small = np.arange(12, dtype=np.uint8).reshape(3, 4)
    large = images.enlarge(small, 5)
    assert large.shape == (15, 20)
    assert all(large[y, x] == small[y // 5, x // 5] for y in range(15) for x in range(20))


@pytest.fixture
def run(store_at: tuple[str, Store]) -> RunRecord:
    populated.add_run(store_at[1])
    return store_at[1].run("run-1")


def test_default_labels_give_digits_their_own_key(run: RunRecord) -> None:
    labels = default_labels(range(10), run)
    assert [label.key for label in labels] == [*"0123456789", "q", "x"]
    assert [label.kind for label in labels][-2:] == ["unknown", "artefact"]


@pytest.mark.parametrize("classes", [2, 10, 26, 47, 100])
def test_default_labels_can_always_be_used(classes: int, run: RunRecord) -> None:
    labels = default_labels(range(classes), run)
    rows = [{"key": x.key, "name": x.name, "kind": x.kind} for x in labels]
    assert read_labels(rows) == tuple(labels)


def test_default_labels_are_called_as_the_classes_are(run: RunRecord) -> None:
    named = replace(run, class_names=("cat", "dog", "artefact", "owl"))
    labels = default_labels([0, 2, 3], named)
    assert [(label.key, label.name) for label in labels[:3]] == [
        ("0", "cat"), ("2", "class 2"), ("3", "owl")
    ]  # fmt: skip
    assert labels[3:] == default_labels([], run)
    odd = replace(run, class_names=("class 1", "class 2", "artefact", "a\nb", "x" * 65))
    names = [label.name for label in default_labels(range(5), odd)]
    assert names == ["class 1", "class 2", "class 3", "class 4", "unknown class", "artefact"]


def test_a_class_without_a_name_is_called_by_its_number(store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    populated.add_run(store, class_names=("cat",))
    run = store.run("run-1")
    assert [run.name_of_class(one) for one in (0, 1)] == ["cat", "class 1"]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "empty"),
        ([{"key": None, "name": math.nan}], "empty"),
        ([{"key": "1", "name": "a"}, {"key": "1", "name": "b"}], "key '1' is there twice"),
        ([{"key": "1", "name": "a"}, {"key": "2", "name": "a"}], "name 'a' is there twice"),
        ([{"key": "u", "name": "a"}], "it is Undo"),
        ([{"key": " ", "name": "a"}], "cannot be used"),
        ([{"key": "ab", "name": "a"}], "one letter"),
        ([{"key": "é", "name": "a"}], "one letter"),
        ([{"key": "1", "name": "  "}], "has no name"),
        ([{"key": "1", "name": "a", "kind": "other"}], "none of"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    rows: list[dict[str, object]], complaint: str
) -> None:
    with pytest.raises(StoreError, match=complaint):
        read_labels(rows)


def test_keys_are_read_in_either_case(run: RunRecord) -> None:
    assert read_labels([{"key": "A", "name": "a", "kind": None}])[0].key == "a"
    assert not RESERVED.keys() & {label.key for label in default_labels(range(40), run)}


def test_both_accountants_are_drawn_and_never_on_one_axis() -> None:
    rounds = [a_round(1), a_round(2)]
    dp = charts.dp_chart(rounds, budget=9.0).to_dict()
    first = dp["layer"][0]["encoding"]["color"]["scale"]["domain"]
    bayesian = charts.bayesian_chart(rounds).to_dict()["encoding"]["color"]["scale"]["domain"]
    assert not set(first) & set(bayesian)
    legend = [*first, *bayesian]
    assert legend == [
        "DP, any person (δ = 1e-05)",
        "BDP sound (δ = 1e-10)",
        "BDP corrected (δ = 1e-10)",
        "BDP as published (δ = 1e-10)",
    ]
    frame = charts.epsilon_frame([a_round(1), a_round(4)])
    assert frame.groupby("bound")["epsilon"].apply(list).to_dict() == {
        legend[0]: [4.0, 8.0],
        legend[1]: [1.1, 2.2],
        legend[2]: [0.9, 1.8],
        legend[3]: [0.3, 0.6],
    }


def test_runs_that_are_drawn_together_keep_their_values_colours_and_what_they_lack() -> None:
    progress = {"a": [a_round(1), a_round(2)], "b": [a_round(4)], "c": [a_round(1, private=False)]}
    assert overlay.figure_names(progress) == [overlay.SPENT, "loss", "broken"]
    spent = overlay.overlay_frame(progress, "dp_epsilon")
    assert spent.groupby("run")["value"].apply(list).to_dict() == {
        "a": [4.0, pytest.approx(5.657, abs=1e-3)],
        "b": [8.0],
    }
    assert list(spent["said"]) == ["4", "5.66", "8"]  # rounded up, as every figure of privacy
    assert list(overlay.overlay_frame(progress, "loss")["value"]) == [1.0, 0.5, 0.25, 1.0]
    assert overlay.overlay_frame(progress, "broken").empty
    assert overlay.unbounded(progress, "dp_epsilon") == ["c"]  # is named, as no line can show it
    lines = []
    for names in (list("abcdefgh"), list("ab")):
        drawn = overlay.overlay_chart(spent, names, "ε").to_dict()["encoding"]
        colours, dashes = (drawn[one]["scale"]["range"] for one in ("color", "strokeDash"))
        lines.append([(one, *dash) for one, dash in zip(colours, dashes, strict=True)])
    assert len(set(lines[0])) == 8 and lines[0][:2] == lines[1]


def test_infinite_and_missing_values_are_not_drawn() -> None:
    assert charts.epsilon_frame([a_round(1, private=False)]).empty
    assert set(charts.metric_frame([a_round(1)])["metric"]) == {"loss"}
    assert charts.metric_names([a_round(1)]) == ["loss", "broken"]


@pytest.mark.law("5: both notions are shown together")
def test_figures_name_both_accountants_with_their_delta() -> None:
    assert figures(a_round(1, private=False)) == (
        "DP ε = ∞ (δ = 1e-05) · BDP ε = ∞ sound, ∞ corrected, ∞ as published (δ = 1e-10)"
    )
    assert [epsilon_text(x) for x in (0.0, 0.123456, 12.3456, 12345.6, math.inf)] == [
        "0",
        "0.124",
        "12.4",
        "12,346",
        "∞",
    ]


def test_strips_have_a_column_a_class_where_it_comes_out_even(
    store_at: tuple[str, Store],
) -> None:
    store = store_at[1]
    populated.whole_run(store)
    found = store.samples(SampleFilter(batch_id=store.batches("run-1")[0].batch_id))
    ordered, columns = arrange_strip(found)
    assert columns == 10
    assert [s.requested_class for s in ordered] == [i % 10 for i in range(40)]
    assert sorted(s.sample_id for s in ordered) == sorted(s.sample_id for s in found)
    uneven: list[StoredSample] = found[:13]
    assert sorted(s.sample_id for s in arrange_strip(uneven)[0]) == [s.sample_id for s in uneven]


def test_the_percentile_curve_leaves_out_shares_of_less_than_one_user() -> None:
    curve = {"0.5": 1.0, "0.99": 2.0, "0.9999": 2.9, "1": 3.0}
    rows = percentiles.curve_frame(replace(a_round(1), percentiles=curve), users=1000)
    most = rows[rows["bound"] == percentiles.SOUND]
    assert most[["left out", "epsilon"]].to_numpy().tolist() == [[0.5, 1.0], [0.01, 2.0]]
    assert set(rows["bound"]) == {percentiles.SOUND}, "DP stands in words, not on this axis"
    assert percentiles.CORRECTED not in set(rows["bound"])
    both = replace(a_round(1), percentiles=curve, percentiles_corrected={"0.5": 0.4, "1": 3.0})
    estimate = percentiles.curve_frame(both, users=1000).query("bound == @percentiles.CORRECTED")
    assert estimate[["left out", "epsilon"]].to_numpy().tolist() == [[0.5, 0.4]]
    assert percentiles.percentile_chart(rows).to_dict()["encoding"]["x"]["field"] == "left out"


def test_there_is_no_percentile_curve_without_a_finite_bound() -> None:
    for curve in ({}, {"0.5": math.inf, "1": math.inf}, {"1": 3.0}):
        assert percentiles.curve_frame(replace(a_round(1), percentiles=curve), users=1000).empty


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, ""),
        ({"split.side": "none", "data.slice": ""}, ""),
        ({"data.slice": "app_version=2.0"}, "Only users of the slice app_version=2.0."),
        (
            {"split.side": "from", "split.rule": "recognised", "split.threshold": 0.7},
            "is at or above 0.7. Who they are is not known here",
        ),
        ({"split.side": "below", "split.model": "/runs/<b>"}, "/runs/<b> is below"),
        ({"split.side": 3}, ""),
    ],
    ids=str,
)
def test_a_run_page_says_which_users_the_run_is_about(
    store_at: tuple[str, Store], config: dict[str, object], said: str
) -> None:
    populated.add_run(store_at[1])
    run = store_at[1].run("run-1")
    found = about(replace(run, config=config))
    assert said in found and bool(said) == bool(found)
