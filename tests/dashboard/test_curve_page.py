"""The page of privatizers' curves: what is attacked, estimated and certified, and in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import populated
import pytest
from serving import Served
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.widgets.display import rows_of
from fedlens.store import (
    PrivatizerAttack,
    PrivatizerControl,
    PrivatizerCurve,
    PrivatizerPoint,
    Store,
    StoredPrivatizerCurve,
)
from fedlens_research.pages.curve_tables import (
    attack_table,
    certified_table,
    fairness_table,
    place,
    point_table,
    sensitive_chart,
    strongest,
)

LABEL = "simulation only: trained and measured on raw data"
Opener = Callable[..., AppTest]


def an_attack(attacker: str, mean: float, **changes: Any) -> PrivatizerAttack:
    fields: dict[str, Any] = {
        "attacker": attacker,
        "mean": mean,
        "std": 0.01,
        "low": mean - 0.02,
        "high": mean + 0.02,
        "leak": mean - 0.5,
        "leak_low": mean - 0.55,
        "leak_high": mean - 0.45,
        "frozen": 0.5,
    }
    return PrivatizerAttack(**fields | changes)


def a_point(alpha: float | None, reads: float, **changes: Any) -> PrivatizerPoint:
    fields: dict[str, Any] = {
        "alpha": alpha,
        "utility": 0.97,
        "utility_std": 0.004,
        "fresh": 0.98,
        "fresh_std": 0.002,
        "fairness": {"demographic_parity": 0.25},
        "latency_ms": 0.31,
        "seconds": 60.0,
        "attacks": (an_attack("logistic", reads - 0.1), an_attack("same", reads)),
    }
    return PrivatizerPoint(**fields | changes)


def a_curve(**changes: Any) -> PrivatizerCurve:
    raw = (an_attack("logistic", 0.9), an_attack("prior", 0.5), an_attack("same", 0.95))
    fields: dict[str, Any] = {
        "method": "information",
        "data": "mnist-thickness",
        "at": populated.MOMENT,
        "quick": False,
        "seeds": 3,
        "utility_measure": "accuracy",
        "least_sum": 0.02,
        "label": LABEL,
        "controls": (PrivatizerControl(sent="the answer alone", secret=0.61, use=0.97),),
        "points": (
            a_point(None, 0.95, attacks=raw, latency_ms=None),
            a_point(0.5, 0.8),
            a_point(0.9, 0.65, utility=0.93, certified_nats=41.5),
        ),
    }
    return PrivatizerCurve(**fields | changes)


def stored(**changes: Any) -> StoredPrivatizerCurve:
    fields = {name: getattr(a_curve(), name) for name in PrivatizerCurve.__dataclass_fields__}
    return StoredPrivatizerCurve(**fields | changes, curve_id=4)


def words(app: AppTest) -> str:
    parts = [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]
    return "\n".join(str(part.value) for part in parts)


def test_an_empty_store_says_how_to_make_a_curve(open_page: Opener) -> None:
    app = open_page("privatizers")
    assert not app.exception and "No curves yet" in app.info[0].value
    assert "fedlens privatizer curve" in app.code[0].value


def test_a_curve_says_what_it_is_worth(open_page: Opener, store_at: tuple[str, Store]) -> None:
    store_at[1].record_privatizer_curve(a_curve())
    app = open_page("privatizers")
    assert not app.exception and not app.error
    said = words(app)
    assert LABEL in app.warning[0].value.lower()
    assert "not differentially private" in said and "a better attacker may come" in said
    assert "quick" not in said
    points = rows_of(app.dataframe[0].value)
    alone = "no filter: the answer alone"
    assert [row["Point"] for row in points] == ["raw records", alone, "α = 0.5", "α = 0.9"]
    assert (points[1]["Utility"], points[1]["reads"]) == ("0.970", "0.610")
    assert points[3]["reads"] == "0.650 ± 0.010"
    assert "send the answer" in said


def test_the_address_names_the_curve(open_page: Opener, store_at: tuple[str, Store]) -> None:
    first = store_at[1].record_privatizer_curve(a_curve())
    store_at[1].record_privatizer_curve(a_curve(method="cloak", quick=True, seeds=1))
    assert "information" in open_page("privatizers", curve=str(first)).selectbox[0].format_func(
        str(first)
    )
    newest = open_page("privatizers", curve="999")
    assert "999" in newest.warning[0].value
    assert "A quick curve" in words(newest) and "1 seed(s)" in words(newest)


def test_certified_figures_stand_apart_and_none_is_said() -> None:
    rows = rows_of(certified_table(stored()))
    assert [row["Told of the record, at most (nats)"] for row in rows] == ["none", "41.5"]
    assert not any("certified" in str(key).lower() for key in rows_of(point_table(stored()))[0])


def test_who_sees_no_record_is_a_line_of_reference() -> None:
    curve = stored()
    blind = [row for row in rows_of(attack_table(curve)) if row["Attacker"] == "prior"]
    assert [row["Point"] for row in blind] == ["no record"]
    assert strongest(curve.points[0]).attacker == "same"
    chart = sensitive_chart(curve).to_dict()
    levels = [rows for rows in chart["datasets"].values() if "level" in rows[0]]
    assert {row["name"]: row["level"] for row in levels[0]} == {
        "prior only": 0.5,
        "raw records": 0.95,
        "the answer alone": 0.61,
    }


def test_one_seed_has_no_deviation_and_no_fairness_no_table() -> None:
    raw, *others = a_curve().points
    assert rows_of(point_table(stored(seeds=1)))[0]["Utility"] == "0.970"
    bare = stored(points=(a_point(None, 0.9, fairness={}), a_point(0.5, 0.8, fairness={})))
    assert fairness_table(bare).empty and not fairness_table(stored()).empty
    assert place(a_point(None, 0.8, suppression_ratio=0.4)) == "suppressed = 0.4"
    assert place(a_point(1.0, 0.8, weight=1.5)) == "α = 1, λ = 1.5"
    assert raw.is_raw and not any(one.is_raw for one in others)


@pytest.mark.browser
def test_a_person_sees_the_curve(
    signed_in_page: Any, served: Served, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    page = signed_in_page
    store_at[1].record_privatizer_curve(a_curve())
    page.goto(f"{served.address}/privatizers")
    page.get_by_text("Simulation only: trained and measured on raw data").wait_for()
    charts = page.locator("[data-testid='stVegaLiteChart']")
    charts.nth(1).locator("canvas, svg").first.wait_for()
    assert charts.count() == 2
    page.get_by_text("Certified, apart from all attacks").wait_for()
    page.get_by_text("not differentially private").wait_for()
    page.screenshot(path=str(tmp_path / "privatizers.png"), full_page=True)
    assert page.locator("img").count() <= 1  # the logo: no picture of anybody's record
