"""Each page over an empty store, a private run and a run that protects no one."""

from __future__ import annotations

from collections.abc import Callable

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.views.runs import row
from fedlens.dashboard.widgets.markup import plain
from fedlens.store import PresenceRow, Store

PAGES = ("runs", "run", "diagnosis", "samples", "compare", "annotate")
Opener = Callable[..., AppTest]


def words(app: AppTest) -> str:
    """All text on the page."""
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.title]
    metrics = [f"{metric.label} {metric.value}" for metric in app.metric]
    return "\n".join([*(str(part.value) for part in parts), *metrics])


def choose(app: AppTest, label: str, option: str) -> None:
    """Choose an option as it is shown, in the select box of that label."""
    box = next(box for box in app.selectbox if box.label == label)
    box.set_value(box.options.index(option)).run()


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_store_is_explained(open_page: Opener, page: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert "No runs yet" in words(app) or "yet" in app.info[0].value


def test_an_empty_store_says_how_to_start_a_run(open_page: Opener) -> None:
    assert "fedlens simulate" in open_page("runs").code[0].value


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("private", [True, False])
def test_pages_show_a_run(
    open_page: Opener, store_at: tuple[str, Store], page: str, private: bool
) -> None:
    populated.whole_run(store_at[1], private=private)
    populated.add_project(store_at[1])
    app = open_page(page)
    assert not app.exception
    if page != "runs":
        assert any("NOT PRIVATE" in error.value for error in app.error) != private


def test_noise_is_called_noise_and_labelled_only_on_request(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    """On every page of the run; a project on it is made where somebody says so."""
    store = store_at[1]
    populated.add_run(store)
    populated.add_round(store, "run-1", 1)
    signal = {str(c): 0.1 for c in range(populated.CLASSES)}
    populated.add_batch(store, "run-1", 1, "curated", 20, fidelity=signal)
    for page in ("run", "samples", "diagnosis", "annotate"):
        assert any("**Noise.**" in error.value for error in open_page(page).error) != (
            page == "annotate"
        )
    app = open_page("annotate")
    create(app)
    assert not store.projects()
    assert any("its samples are noise" in error.value for error in app.error)
    next(box for box in app.checkbox if box.label == "Label noise all the same").check()
    create(app)
    assert len(store.projects()) == 1


def create(app: AppTest) -> None:
    next(button for button in app.button if button.label == "Create project").click().run()


@pytest.mark.law("5: both notions are shown together")
def test_a_line_of_the_list_of_runs_shows_both_accountants(store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    populated.whole_run(store, "good")
    populated.whole_run(store, "bad", private=False)
    populated.add_run(store, "young", status="running")
    glances = store.glances()
    lines = {run.run_id: row(run, glances.get(run.run_id), ("", "")) for run in store.runs()}
    good, bad, young = lines["good"], lines["bad"], lines["young"]
    assert good["rounds"]["text"] == "3 / 4"
    assert good["epsilon"]["text"] == "DP 6.93 (δ 1e-05)"
    assert good["epsilon"]["under"] == "BDP 1.91 sound (δ 1e-10)"
    assert [one["name"]["under"] for one in (good, bad, young)] == ["", "NOT PRIVATE", ""]
    assert bad["epsilon"]["text"] == "DP ∞ (δ 1e-05)"
    assert young["rounds"]["text"] == "0 / 4"
    assert young["status"]["under"] == "training round 1"


def test_a_run_shows_its_figures_ledger_and_guarantee(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1], stop_reason="the budget is used up")
    app = open_page("run", run="run-1")
    text = words(app)
    for expected in (
        "DP ε (δ = 1e-05) 6.93",
        "BDP ε corrected (δ = 1e-10) 1.56",
        "BDP ε as published (δ = 1e-10) 0.52",
        "Each user is protected",
        "the budget is used up",
        "any** person",
    ):
        assert expected in text
    ledger = app.dataframe[0].value
    assert ledger["Release"].to_list() == ["released", "lost: paid for, never used", "released"]
    assert ledger["Noise z"].to_list() == [2.0, 2.0, 2.0]


def test_the_round_slider_follows_the_newest_round_until_it_is_moved(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.add_run(store, status="running")
    for round_ in (1, 2):
        populated.add_round(store, "run-1", round_)
    app = open_page("run", run="run-1")
    assert app.select_slider[0].value == 2
    populated.add_round(store, "run-1", 3)
    assert app.run().select_slider[0].value == 3
    app.select_slider[0].set_value(1).run()
    populated.add_round(store, "run-1", 4)
    app.run()
    assert app.select_slider[0].value == 1
    assert "round 1" in words(app)


def test_a_run_without_rounds_says_so(open_page: Opener, store_at: tuple[str, Store]) -> None:
    populated.add_run(store_at[1], status="running")
    app = open_page("run", run="run-1")
    assert not app.exception
    assert "Round 1 of 4 is under way" in words(app)


def test_an_unknown_run_in_the_address_is_named(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("run", run="<b>nobody</b>")
    assert not app.exception
    assert "nobody" in app.warning[0].value


def test_a_project_is_made_with_a_label_a_class(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("annotate")
    app.text_input[0].set_value("digits")
    next(button for button in app.button if button.label == "Create project").click().run()
    assert not app.exception
    project = store_at[1].projects()[0]
    assert (project.name, project.run_id, project.purpose) == ("digits", "run-1", "curated")
    assert [(x.key, x.name, x.kind) for x in project.labels] == [
        *((str(c), f"class {c}", "class") for c in range(10)),
        ("q", "unknown class", "unknown"),
        ("x", "artefact", "artefact"),
    ]
    assert app.query_params["project"] == str(project.project_id)
    app.text_input[0].set_value("digits")
    next(button for button in app.button if button.label == "Create project").click().run()
    assert "choose another name" in words(app)
    assert len(store_at[1].projects()) == 1


def test_a_vanished_store_is_named(open_page: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLENS_STORE", "nowhere/store.db")
    app = open_page("runs")
    assert not app.exception
    assert plain("there is no store at nowhere/store.db") in words(app)


def test_a_run_that_finished_without_some_users_says_so(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    """300 of 1,000 users missed the last two rounds of a run whose status is finished."""
    store = store_at[1]
    populated.whole_run(store)
    store.record_progress(
        presence=[
            PresenceRow(
                run_id="run-1",
                round=number,
                answered=(0, 1) if number < 2 else (0,),
                nodes=2,
                users=1000 if number < 2 else 700,
                users_declared=1000,
            )
            for number in (1, 2, 3)
        ]
    )
    app = open_page("run", run="run-1")
    assert "Not everyone took part" in words(app)
    assert "700 of 1,000 users" in words(app) and "rounds 2 to 3" in words(app)
    ledger = next(table.value for table in app.dataframe if "Speaks for" in table.value)
    assert [value.split()[0] for value in ledger["Speaks for"]] == ["100%", "70%", "70%"]


@pytest.mark.parametrize("status, said", [("running", True), ("interrupted", False)])
@pytest.mark.law("5: an early end is charged as the whole plan")
def test_figures_of_a_run_that_goes_on_are_told_from_those_of_its_end(
    open_page: Opener, store_at: tuple[str, Store], status: str, said: bool
) -> None:
    populated.whole_run(store_at[1], status=status)
    captions = " ".join(str(one.value) for one in open_page("run", run="run-1").caption)
    assert ("a bound only if" in captions) is said
