"""A run's data card on its page: shown as it was kept, escaped, and said where it is damaged."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diagnosed
import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.faults import panel
from fedlens.dashboard.summary.data_card import DAMAGED
from fedlens.store import Store

Opener = Callable[..., AppTest]
VERDICT = {
    "expectation": "brightness < 0.5",
    "outcome": "cannot tell",
    "says": "median of brightness is 0.36",
    "error": 0.05,
}
EVIL = "<script>alert(1)</script>"


def report(**changes: Any) -> dict[str, Any]:
    statistic = {
        "name": "brightness",
        "says": "mean brightness",
        "of": "records",
        "bins": ["0 to 0.5", "0.5 to 1"],
        "shares": [0.7, 0.3],
        "half_widths": [0.05, 0.05],
        "noise": [0.02, 0.02],
        "quantity": {"says": "median of brightness", "value": 0.36, "low": 0.3, "high": 0.4},
    }
    return {
        "run_dir": "/data/march",
        "epsilon": 0.298,
        "spent": 0.298,
        "delta": 1e-5,
        "bayesian_epsilon": 0.506,
        "bayesian_sound": None,
        "bayesian_delta": 1e-10,
        "planted": "",
        "users": 1000.0,
        "mass": 0.98,
        "mass_noise": 0.03,
        "deviation": 0.028,
        "statistics": [statistic],
        "compared": "",
        "before": None,
        "changes": [],
        "verdicts": [],
    } | changes


@pytest.fixture
def folder(store_at: tuple[str, Store], tmp_path: Path) -> Path:
    populated.whole_run(store_at[1], "run-1")
    diagnosed.folder_of(tmp_path)
    panel.forget_places()
    return tmp_path


def shown(app: AppTest) -> str:
    """The page's HTML, and that of its pictures."""
    assert not app.exception
    text = "\n".join(part.proto.body for part in app.get("html"))
    coded = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", text)
    return "\n".join([text, *(base64.b64decode(one).decode() for one in coded)])


def test_a_card_is_shown_with_both_guarantees_and_its_errors(
    open_page: Opener, folder: Path
) -> None:
    change = {
        "name": "brightness",
        "p_value": 0.001,
        "adjusted": 0.002,
        "bin": "0 to 0.5",
        "difference": 0.1,
        "half_width": 0.05,
        "named": True,
    }
    more = {"changes": [change], "compared": "/secret/place/april", "before": report()}
    kept = report(verdicts=[VERDICT], planted="dim:0.2", **more)
    (folder / "card.json").write_text(json.dumps(kept))
    text = shown(open_page("run", run="run-1"))
    for expected in (
        "DP ε = 0.298",
        "Bayesian DP ε = 0.506",
        "∞ (sound",
        "dim:0.2",
        "since april",
        "+10.0% ± 5.0%",
        "cannot tell",
        "70.0% ± 5.0%",
        "95% intervals",
    ):
        assert expected in text
    assert "/secret" not in text and text.count('class="was"') == 2


def test_a_run_without_a_card_has_no_heading_for_one(open_page: Opener, folder: Path) -> None:
    app = open_page("run", run="run-1")
    assert "datacard" not in shown(app)
    assert not [one for one in app.markdown if "Data card" in one.value]


def test_names_are_text_and_damage_is_said(open_page: Opener, folder: Path) -> None:
    kept = report(planted=EVIL)
    kept["statistics"][0] |= {"name": EVIL, "bins": [EVIL, EVIL]}
    (folder / "card.json").write_text(json.dumps(kept))
    assert EVIL not in shown(open_page("run", run="run-1"))
    kept = report()
    empty = kept["statistics"][0] | {"bins": [], "shares": [], "half_widths": []}
    several = (
        "{",
        "[]",
        json.dumps({"statistics": 3}),
        *(json.dumps(kept | one) for one in (
            {"users": "many"}, {"verdicts": [VERDICT | {"outcome": 1}]}, {"statistics": [empty]},
        )),
    )  # fmt: skip
    for damaged in several:
        (folder / "card.json").write_text(damaged)
        app = open_page("run", run="run-1")
        assert not app.exception and [one.value for one in app.warning if one.value == DAMAGED]
