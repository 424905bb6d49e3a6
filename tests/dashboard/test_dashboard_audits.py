"""Audits on the run's page, and an alarm that turns every page of the run red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.summary.audits import ALARM, KINDS, build_audit_table, newest
from fedlens.dashboard.views.runs import row
from fedlens.dashboard.widgets.display import rows_of
from fedlens.store import AuditRecord, Store

Opener = Callable[..., AppTest]


def an_audit(run_id: str = "run-1", **changes: Any) -> AuditRecord:
    fields: dict[str, Any] = {
        "run_id": run_id,
        "kind": "one-run",
        "at": populated.MOMENT.date(),
        "claimed_epsilon": 2.42,
        "delta": 1e-6,
        "lower_bound": 0.63,
        "cap": 3.32,
        "verdict": "nothing-found",
        "words": "142 of 200 guesses were right.",
    }
    return AuditRecord(**fields | changes)


def the_alarm(run_id: str = "run-1") -> AuditRecord:
    return an_audit(
        run_id, verdict="alarm", lower_bound=3.1, words="199 of 200 guesses were right."
    )


def test_a_run_that_nobody_audited_says_so(open_page: Opener, store_at: tuple[str, Store]) -> None:
    populated.whole_run(store_at[1])
    app = open_page("run")
    assert not app.exception and not app.error
    assert any("fedlens audit" in caption.value for caption in app.caption)


def test_audits_are_a_table_and_words(open_page: Opener, store_at: tuple[str, Store]) -> None:
    store = store_at[1]
    populated.whole_run(store)
    store.record_audit(an_audit(words="an older one."))
    store.record_audit(an_audit())
    store.record_audit(
        an_audit(
            kind="one-shot",
            lower_bound=None,
            cap=1.5,
            verdict="cannot-detect",
            words="no more than ε = 1.5 could have been shown.",
        )
    )
    app = open_page("run")
    assert not app.exception and not app.error
    said = "\n".join(part.value for part in app.markdown)
    assert "142 of 200" in said and "no more than ε = 1\\.5" in said
    assert "an older one" not in said
    shown = app.dataframe[0].value
    assert list(shown["Verdict"]) == ["cannot detect", "nothing found", "nothing found"]
    assert list(shown["ε at least"]) == ["–", "0.63", "0.63"]
    assert list(shown["Could show at most"]) == ["1.5", "3.32", "3.32"]


@pytest.mark.parametrize("page", ["run", "samples", "annotate"])
def test_an_alarm_turns_every_page_of_the_run_red(
    open_page: Opener, store_at: tuple[str, Store], page: str
) -> None:
    store = store_at[1]
    populated.whole_run(store)
    populated.add_project(store)
    store.record_audit(the_alarm())
    store.record_audit(an_audit())  # a later audit without an alarm takes nothing back
    app = open_page(page)
    assert not app.exception
    assert [e.value for e in app.error if ALARM in e.value and "199 of 200" in e.value]


def test_the_table_of_runs_names_the_run_with_an_alarm(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.whole_run(store, "good")
    populated.whole_run(store, "caught")
    store.record_audit(an_audit("good"))
    store.record_audit(the_alarm("caught"))
    glances = store.glances()
    shown = {run.run_id: row(run, glances[run.run_id], ("", "")) for run in store.runs()}
    assert {name: one["name"]["under"] for name, one in shown.items()} == {
        "good": "",
        "caught": ALARM,
    }
    assert not open_page("run", run="good").error


def test_the_newest_of_each_kind_and_task_in_a_fixed_order() -> None:
    old, new, other = an_audit(words="old"), an_audit(words="new"), an_audit(kind="clipping")
    assert newest([old, other, new]) == [other, new]
    first = an_audit(words="One. Audited: the warmup task alone, user level.")
    second = an_audit(words="Two. Audited: the critic task alone, user level.")
    assert newest([first, second]) == [first, second]
    audited = [row["Audited"] for row in rows_of(build_audit_table([first, second]))]
    assert audited == ["the critic task alone, user level", "the warmup task alone, user level"]
    assert set(KINDS) >= {"one-run", "one-shot", "noise"}
