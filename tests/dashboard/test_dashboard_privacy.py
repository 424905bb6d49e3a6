"""The privacy page: one binding figure for all that was spent of the same people."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.accountant.ledger.together import plan_record
from fedlens.accountant.probing import approved_as, probe_event
from fedlens.dashboard.faults import panel
from fedlens.dashboard.privacy import approvals
from fedlens.dashboard.privacy.answers import answers, report_of
from fedlens.dashboard.privacy.books import check_mirrors, open_books
from fedlens.dashboard.privacy.people import list_people
from fedlens.dashboard.privacy.statement import as_html, as_pdf
from fedlens.dashboard.summary.privacy import epsilon_text
from fedlens.dashboard.widgets.options import STORE_VARIABLE
from fedlens.store import AuditRecord, LedgerRow, RoundRecord, SpendingRule, Store

Opener = Callable[..., AppTest]
DELTA = 1e-5
ROUND = SubsampledGaussian("user", "none", "add-remove", 1.0, 8.0, 1.0)
PROBE = probe_event(12.0)
NAME = "main <script>"
SETTINGS = {"privacy.delta": DELTA, "privacy.bayesian_delta": 1e-10, "schedule": "critic"}


def epsilon(*booked: tuple[Event, int], delta: float = DELTA) -> float:
    account = DifferentialAccountant()
    for event, times in booked:
        account.compose(event, times)
    return account.epsilon(delta).epsilon


def add_ledger(
    folder: Path, run: str, events: Sequence[Event], *, plan: int = 0, **header: Any
) -> Ledger:
    """A run's folder with its ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"run_id": run, "unit": "user", "noise_source": "os-entropy"}
    if plan:
        record["plan"] = plan_record([(ROUND, plan)])
    ledger = Ledger.create(folder / "ledger.jsonl", record | header)
    for number, event in enumerate(events, start=1):
        purpose = "probe" if event == PROBE else "training round"
        ledger.append(event, round=number, purpose=purpose, evidence_digest=None)
    return ledger


def add_run(store: Store, run: str, **changes: Any) -> None:
    """A finished run of the store, whose rounds are in its ledger alone."""
    config = SETTINGS | changes.pop("config", {})
    populated.add_run(store, run, config=config, name=changes.pop("name", run), **changes)


def words(app: AppTest) -> str:
    parts = [*app.markdown, *app.caption, *app.error, *app.warning, *app.success]
    pieces = [str(part.value) for part in parts]
    return "\n".join([*pieces, *(str(one.proto.body) for one in app.get("html"))])


@pytest.fixture
def asked(
    store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, Path]:
    """A run that ended early, of two rounds out of three, and a probe beside it."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    store = store_at[1]
    add_run(store, "main", name=NAME, config={"privacy.epsilon_budget": 4.0})
    add_ledger(tmp_path / "main", "main", [ROUND] * 2, plan=3)
    add_ledger(tmp_path / "main-probe-1", "asked", [PROBE])
    return store, tmp_path


TOTAL = epsilon_text(epsilon((ROUND, 3), (PROBE, 1)))


def test_all_pages_say_the_same_binding_figure(
    asked: tuple[Store, Path], open_page: Opener
) -> None:
    populated_rounds(asked[0])
    privacy = words(open_page("privacy"))
    assert f"DP ε {TOTAL}" in privacy
    assert privacy.count("of 12</p>") == 12
    assert "1 run and 1 probe" in privacy
    assert f"DP ε {TOTAL}" in words(open_page("run", run="main"))
    assert f"DP ε {TOTAL} in total" in words(open_page("runs"))


def populated_rounds(store: Store) -> None:
    """What the store has of the run: its own figure alone."""
    store.record_progress(
        ledger=[
            LedgerRow(
                run_id="main",
                index=0,
                round=1,
                event=ROUND.to_json(),
                purpose="training round",
                entry_hash=_hashes(store)[0],
            )
        ]
    )
    figures = dict.fromkeys(("bdp_as_published", "bdp_corrected"), 1.0)
    store.record_progress(
        rounds=[
            RoundRecord(
                run_id="main",
                round=1,
                metrics={},
                dp_epsilon=epsilon((ROUND, 3)),
                delta_dp=DELTA,
                dp_method="analytic",
                bdp_sound=epsilon((ROUND, 3), delta=1e-10),
                delta_bdp=1e-10,
                **figures,
            )
        ]
    )


def _hashes(store: Store) -> list[str]:
    folder = Path(store.place.removeprefix("sqlite:///")).parent
    return [entry.hash for entry in Ledger.verify(folder / "main" / "ledger.jsonl")]


def opened(
    store: Store, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, url: str
) -> Any:
    monkeypatch.setenv(STORE_VARIABLE, url)
    (people,) = list_people(store.runs(), folders)
    books = open_books(people)
    check_mirrors(books)
    return books


@pytest.fixture
def report(
    asked: tuple[Store, Path], store_at: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    def made() -> Any:
        root = asked[1]
        folders = {"main": root / "main", "asked": root / "main-probe-1"}
        return report_of(opened(asked[0], folders, monkeypatch, store_at[0]), SpendingRule(), ())

    return made


def test_dp_and_bayesian_dp_stand_at_the_same_delta(report: Callable[[], Any]) -> None:
    said = dict(answers(report())[3].facts)
    low, high = (epsilon_text(epsilon((ROUND, 3), (PROBE, 1), delta=d)) for d in (DELTA, 1e-10))
    assert said["At δ = 1e-05"].startswith(f"DP ε {low}; Bayesian DP ε ≤ {low}")
    assert said["At δ = 1e-10"].startswith(f"DP ε {high}; Bayesian DP ε ≤ {high}")


def test_a_ledger_that_was_changed_or_that_its_store_knows_better_is_named(
    asked: tuple[Store, Path], report: Callable[[], Any]
) -> None:
    assert not report().books.problems
    populated_rounds(asked[0])
    assert not report().books.problems
    path = asked[1] / "main" / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"noise_multiplier":8.0', b'"noise_multiplier":9.0', 1))
    changed = report()
    assert "its hash does not fit" in changed.books.problems[0]
    assert changed.total.epsilon >= epsilon((ROUND, 3))  # never below what is known
    assert answers(changed)[7].kind == "refused"
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0])  # cut back to its header
    assert report().books.problems


def test_a_budget_warns_and_says_what_is_left(report: Callable[[], Any]) -> None:
    made = report()
    used = epsilon((ROUND, 3), (PROBE, 1)) / 4.0
    assert made.total.used == pytest.approx(used)
    assert answers(made)[2].kind == "clear"
    warned = replace(made, rule=SpendingRule(warn_at=used * 0.9))
    assert answers(warned)[2].kind == "found"
    bought = {what: count for count, what in answers(made)[6].facts}
    left = int(bought[f"whole runs like {NAME}"])
    assert epsilon((ROUND, 3 + 3 * left), (PROBE, 1)) <= 4.0
    assert epsilon((ROUND, 6 + 3 * left), (PROBE, 1)) > 4.0


def test_a_population_counts_all_its_runs_against_its_budget(
    store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Opener
) -> None:
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    terms = PopulationTerms("ward", "user", DELTA, 8.0, users=1000)
    ward = Population.create(tmp_path / "home" / "populations" / "ward", terms)
    for run, event in (("one", ROUND), ("two", ROUND), ("two-probe-1", PROBE)):
        purpose = "probe" if event == PROBE else "training round"
        ward.charge(event, run=run, number=1, purpose=purpose)
        add_run(store_at[1], run, config={"privacy.population": "ward"})
        add_ledger(tmp_path / run, run, [event], population=ward.identity)
    total = epsilon_text(epsilon((ROUND, 2), (PROBE, 1)))
    shown = words(open_page("privacy"))
    assert f"DP ε {total}" in shown and "Population ward" in shown
    assert f"{ward.percent_spent()} of the budget used" in shown
    assert "does not hold" not in shown and "2 runs and 1 probe" in shown
    add_ledger(tmp_path / "stray", "stray", [ROUND], population=ward.identity)
    add_run(store_at[1], "stray", config={"privacy.population": "ward"})
    panel.forget_places()
    assert "has no entry for round 1 of run stray" in words(open_page("privacy"))


def test_a_probe_that_a_schedule_was_not_let_ask_is_decided_here(
    store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Opener
) -> None:
    """At its own noise, with all its rounds, of one run's network."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    store_at[1].add_account("otto", "officer", "a long password", actor="test")
    (otto,) = (one for one in store_at[1].accounts() if one.name == "otto")
    monkeypatch.setattr(approvals, "account", lambda: otto)
    monkeypatch.setattr(approvals, "require", lambda _: otto)
    terms = PopulationTerms("ward", "user", DELTA, 8.0, users=1000)
    ward = Population.create(tmp_path / "home" / "populations" / "ward", terms)
    ward.charge(ROUND, run="one", number=1)
    add_run(store_at[1], "one", name="first of ward", config={"privacy.population": "ward"})
    add_ledger(tmp_path / "one", "one", [ROUND], population=ward.identity)
    ward.set_officer_rule(0.0, 1.0, by="otto")
    question = approved_as("recognised", "one")

    def ask() -> str | None:
        return ward.ask_officer(PROBE, "probe", "", question, run="one", times=2)

    for approved in (False, True):
        assert ask()
        app = open_page("privacy")
        shown = words(app)
        assert "of the network of run first of ward" in shown and "in 2 rounds" in shown
        assert f"DP ε = {epsilon_text(epsilon((PROBE, 2)))}" in shown and "1 now" in shown
        label = "Approve" if approved else "Decline"
        next(one for one in app.button if one.label == label).click().run()
        assert "A run or a command wants" not in words(app)
        assert f"{'approved' if approved else 'declined'} by otto" in words(app)
    assert ask() is None


def test_a_run_without_its_folder_has_the_figure_of_its_store(
    store_at: tuple[str, Store], open_page: Opener
) -> None:
    populated.whole_run(store_at[1], config=SETTINGS)
    populated.whole_run(store_at[1], "loud", private=False, config=SETTINGS)
    shown = words(open_page("privacy", people="run-1"))
    assert f"DP ε {epsilon_text(4.0 * 3**0.5)}" in shown
    assert "No ledger was found on this machine" in shown
    assert "1 run by the copy in its store" in shown and "0 runs" not in shown
    assert "ε = 0 " not in shown and "not known without its ledger" in shown
    assert "NOT PRIVATE" in words(open_page("privacy", people="loud"))


def test_a_filter_s_nats_stand_on_one_line_with_dp(
    store_at: tuple[str, Store], open_page: Opener
) -> None:
    hidden = {"kind": "trained", "network": "spectral", "capacity": 8.0}
    named = {f"privatizer.{name}": value for name, value in hidden.items()}
    users = {"data.samples_per_user": 10, "data.records_per_user": 0}
    populated.whole_run(store_at[1], config=SETTINGS | named | users)
    populated.whole_run(store_at[1], "plain", config=SETTINGS | {"privatizer.kind": "none"})
    shown = words(open_page("privacy", people="run-1"))
    (line,) = re.findall("<dt>With filters</dt><dd>(.*?)</dd>", shown)
    assert line.startswith(f"DP ε {epsilon_text(4.0 * 3**0.5)} for all")
    assert "at most 8 nats on average, 10 unlike ones 80" in line
    assert "With filters" not in words(open_page("privacy", people="plain"))


def test_runs_belong_together_by_what_they_asked_built_on_and_borrowed(
    store_at: tuple[str, Store], tmp_path: Path
) -> None:
    store = store_at[1]
    first = add_ledger(tmp_path / "first", "first", [ROUND])
    prior = PriorReleases.of(first, other_people=False).to_json()
    others = PriorReleases.of(first, other_people=True).to_json()
    add_ledger(tmp_path / "second", "second", [ROUND], builds_on=prior)
    add_ledger(tmp_path / "apart", "apart", [ROUND], builds_on=others)
    add_ledger(tmp_path / "lender", "lender", [ROUND])
    for name, settings in (
        ("first", {}),
        ("second", {}),
        ("apart", {}),
        ("lender", {}),
        ("second-probe-1", {"tasks.probe.model": str(tmp_path / "lender"), "schedule": "probe"}),
    ):
        add_run(store, name, config=settings)
    add_ledger(tmp_path / "second-probe-1", "second-probe-1", [PROBE])
    folders = {run.run_id: tmp_path / run.run_id for run in store.runs()}
    found = {
        frozenset(run.run_id for run in one.runs) for one in list_people(store.runs(), folders)
    }
    assert found == {
        frozenset({"first", "second", "second-probe-1", "lender"}),
        frozenset({"apart"}),
    }


def test_audits_are_listed_with_their_day_and_an_alarm_is_red(
    asked: tuple[Store, Path], report: Callable[[], Any]
) -> None:
    asked[0].record_audit(
        AuditRecord(
            run_id="main",
            kind="clipping",
            at=date(2026, 3, 2),
            claimed_epsilon=1.0,
            delta=DELTA,
            lower_bound=2.0,
            verdict="alarm",
            words="Updates above the clip. Audited: main",
        )
    )
    audited = answers(report())[9]
    assert audited.kind == "refused"
    assert audited.facts[0][0] == "2026-03-02"


def text_of(pdf: bytes) -> str:
    """The letters of a PDF that matplotlib made, each of two bytes, as they can be selected."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        with suppress(zlib.error):
            for line in re.findall(rb"\[(.*?)\]\s*TJ", zlib.decompress(stream), re.DOTALL):
                pieces = re.findall(rb"\(((?:\\.|[^\\)])*)\)", line, re.DOTALL)
                found.append(b"".join(pieces).decode("latin-1"))
    return "\n".join(found).replace("\x00", "").replace("\\", "")


def test_the_statement_holds_the_twelve_answers_as_text(
    asked: tuple[Store, Path], report: Callable[[], Any]
) -> None:
    made = report()
    html = as_html(made)
    assert html.count("of 12</p>") == 12 and "<script" not in html and "://" not in html
    (head,) = {one.ledger.head for one in made.books.chains if one.name == NAME}
    assert head in html and f"{made.day:%Y-%m-%d}" in html
    pdf = as_pdf(made)
    assert pdf.startswith(b"%PDF-") and b"/ToUnicode" in pdf
    shown = text_of(pdf)
    assert "1. Whose privacy is it" in shown and "12. What can be signed" in shown
    assert head in shown.replace("\n", "")
    assert "Signature" in shown
