"""The diagnosis on the pages: found, clear, too noisy, refused, failed, and where it is kept."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import diagnosed
import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.api.diagnoses import keep_diagnosis, place_of_diagnosis
from fedlens.dashboard import jobs as processes
from fedlens.dashboard.faults import cards, jobs
from fedlens.dashboard.faults.answer import UNEXPLAINED, AnswerError, percent, read_answer
from fedlens.dashboard.faults.evidence import hypothesis_of
from fedlens.dashboard.faults.jobs import Diagnoses, Question, RunPlace, list_places
from fedlens.dashboard.faults.looks import pictures
from fedlens.dashboard.samples.images import base64_text
from fedlens.diagnosis import report
from fedlens.diagnosis.stored_answers import MOST_PICTURED
from fedlens.store import Store

Opener = Callable[..., AppTest]
FOUND = diagnosed.said(findings=[diagnosed.TURNED])


def page_text(app: AppTest) -> str:
    """All HTML and text on the page."""
    parts = [*app.get("html"), *app.markdown, *app.info, *app.error, *app.caption]
    return "\n".join(str(getattr(part, "body", None) or part.proto.body) for part in parts)


@pytest.fixture
def place(store_at: tuple[str, Store], tmp_path: Path) -> RunPlace:
    """A finished run whose folder is the store's."""
    populated.whole_run(store_at[1], "run-1", name="<b>bold</b>")
    return diagnosed.folder_of(tmp_path)


def test_a_finding_says_what_in_whom_where_how_sure_and_what_else(
    open_page: Opener, place: RunPlace
) -> None:
    diagnosed.keep(place, FOUND)
    text = page_text(open_page("diagnosis", run="run-1"))
    for expected in (
        "Turned left by 90 degrees",
        "31%",
        "26% to 36%",
        "All classes alike",
        "Very sure",
        "Harmless explanations",
        "Could not have been seen",
        "invert",
        "5.0%",
        "never",
        "costs no privacy",
    ):
        assert expected in text
    assert "found to be of another kind" not in text
    assert "each is less than a thousandth as likely" in text


def test_a_probe_that_cannot_be_asked_is_not_offered_and_says_why(
    open_page: Opener, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    config = {"data.users": 1000, "privacy.delta": 1e-5}
    populated.whole_run(store_at[1], "run-1", config=config)
    here = diagnosed.folder_of(tmp_path)
    for refusal, shown in (("", True), ("the run trained no <b>network</b>", False)):
        diagnosed.keep(
            here, diagnosed.said(findings=[{**diagnosed.TURNED, "probe_refusal": refusal}])
        )
        app = open_page("diagnosis", run="run-1")
        text = page_text(app)
        assert ("Ask all users one number" in text) == shown
        assert ("fedlens probe" in text) == shown
        assert ("The run trained no &lt;b&gt;network" in text) != shown


def test_other_explanations_are_named_with_how_likely_they_are() -> None:
    other = {"fault": "tilt", "says": "tilted", "likelihood": 0.04}
    doubtful = {**diagnosed.TURNED, "alternatives": [other], "certainty": 0.96}
    kept = read_answer(diagnosed.said(findings=[doubtful]))
    assert cards.describe_alternatives(kept.findings[0]) == (
        "Tilted, 4.0% as likely. That it is this one: 96%, if it is one of the library alone."
    )


def test_the_runs_and_the_run_say_what_was_found(open_page: Opener, place: RunPlace) -> None:
    diagnosed.keep(place, FOUND)
    hint = "turned left by 90 degrees in 31% of users"
    runs = page_text(open_page("runs"))
    assert hint in runs
    assert "<b>bold</b>" not in runs, "a name is shown, never obeyed"
    assert hint in page_text(open_page("run", run="run-1"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (diagnosed.said(), "No fault found"),
        (diagnosed.said(smallest_detectable={"dim": 0.9, "blur": None}), "Too noisy to judge"),
        (
            diagnosed.said(
                findings=[diagnosed.TURNED], reference={"fits": False, "why": "five at once"}
            ),
            "The reference is of another kind",
        ),
        (diagnosed.said(findings=[diagnosed.UNNAMED]), "no fault of the library explains"),
    ],
)
def test_every_other_verdict_has_its_words(
    open_page: Opener, place: RunPlace, found: dict[str, object], expected: str
) -> None:
    diagnosed.keep(place, found)
    text = page_text(open_page("diagnosis", run="run-1"))
    assert expected in text
    assert "Turned left" not in text, "nothing is claimed that the reference cannot carry"


def test_what_has_no_name_is_shown_with_where_images_differ_and_no_interval(
    open_page: Opener, place: RunPlace
) -> None:
    png = base64_text(populated.samples(1, 0)[0].png)
    one = {"label": 3, "before": png, "after": png, "change": png}
    shown = {"where": "darker most below left", "shown": [one]}
    found = diagnosed.said(findings=[diagnosed.UNNAMED], deviation=shown)
    diagnosed.keep(place, found)
    app = open_page("diagnosis", run="run-1")
    text = page_text(app)
    for expected in (
        "Something that no fault of the library explains",
        "about 31%",
        "no interval can be given",
        "Darker most below left",
        "difference, class 3",
        "--fault-from my_fault.py",
    ):
        assert expected in text
    assert "95%" not in text and "Keep as a finding" in [one.label for one in app.button]
    kept = read_answer(found)
    assert read_answer(kept.to_json()) == kept
    assert kept.hint.endswith("in about 31% of users") and kept.unexplained
    assert "most like dim" in hypothesis_of(kept.findings[0])


def test_a_run_whose_folder_is_elsewhere_says_what_to_do(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1], "elsewhere")  # no test makes a folder of that name
    app = open_page("diagnosis", run="elsewhere")
    assert not app.exception
    assert "fedlens dashboard FOLDER" in app.info[0].value


def test_the_chosen_run_is_remembered_by_other_pages(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    for name in ("run-1", "run-2"):
        populated.whole_run(store_at[1], name)
    app = open_page("diagnosis", run="run-1")
    app.query_params.clear()  # as a link in the navigation does
    assert app.run().query_params["run"] == "run-1"


def test_a_probe_stands_behind_the_runs_and_is_no_run_to_diagnose(
    open_page: Opener, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    """It is the newest run, and has neither samples nor sums to look at."""
    populated.whole_run(store_at[1], "run-1")
    populated.add_run(store_at[1], "run-1-probe-1", config={"schedule": "probe"})
    diagnosed.folder_of(tmp_path, "run-1-probe-1")
    assert open_page("run").query_params["run"] == "run-1"
    for page in ("runs", "run", "diagnosis"):
        app = open_page(page, run="run-1-probe-1")
        assert not app.exception
        assert not processes.count_running(), page
    assert "in the diagnosis of the run that was asked" in app.info[0].value


def answered(diagnoses: Diagnoses, question: Question) -> None:
    """Wait until a question is no longer under way."""
    for _ in range(200):
        job = diagnoses.job(question)
        if job is None or job.state == "failed":
            return
        time.sleep(0.05)
    raise AssertionError("still under way")


def test_a_diagnosis_runs_apart_once_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, diagnoses = diagnosed.folder_of(tmp_path), Diagnoses()
    said = json.dumps(diagnosed.said())
    command = [sys.executable, "-c", f"print('words'); print({said!r})"]
    monkeypatch.setattr(jobs, "command_of", lambda _: command)
    question = Question(place)
    assert diagnoses.ask(question, [], 10) is diagnoses.ask(question, [], 10)
    answered(diagnoses, question)
    assert Diagnoses().answer(question) == diagnoses.answer(question)
    (place.path / "releases" / "round-000002.safetensors").write_bytes(b"more sums")
    assert diagnoses.answer(Question(place)) is None, "more releases, another answer"


def test_a_failed_diagnosis_gives_the_last_line_of_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnoses = Diagnoses()
    for line, shown in (
        ("fedlens: reference of another size", "reference of another size"),
        ("KeyError: '/srv/hidden'", "It ended with status 2. The server's log says more."),
    ):
        wrong = f"import sys; print('first', {line!r}, sep='\\n', file=sys.stderr); sys.exit(2)"
        command = [sys.executable, "-c", wrong]
        monkeypatch.setattr(jobs, "command_of", lambda _, command=command: command)
        question = Question(diagnosed.folder_of(tmp_path))
        diagnoses.ask(question, [], 10)
        answered(diagnoses, question)
        job = diagnoses.job(question)
        assert job is not None
        assert job.why == shown


def test_the_command_is_given_paths_and_references_as_single_arguments(tmp_path: Path) -> None:
    command = jobs.command_of(Question(RunPlace("r", tmp_path / "a b;c"), "--out x"))
    assert str(tmp_path / "a b;c") in command
    assert command[-1] == "--reference=--out x"
    named = jobs.command_of(Question(RunPlace("r", Path("--out"))))
    assert not [one for one in named if one.startswith("--out")]


def test_only_so_many_questions_wait_and_one_is_answered_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all objects: a visitor can clear Streamlit's caches, which hold them."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(jobs, "command_of", lambda _: sleeping)
    monkeypatch.setattr("fedlens.dashboard.jobs.MOST_AT_ONCE", 2)
    place = diagnosed.folder_of(tmp_path)
    first, second = Diagnoses(), Diagnoses()
    for turn in ("a", "b"):
        first.ask(Question(place, turn), [], 10)
    refused = first.ask(Question(place, "c"), [], 10)
    assert (refused.state, refused.why[:14]) == ("failed", "2 others wait ")
    second.ask(Question(place, "d"), [], 10)
    for _ in range(100):
        if processes.count_running():
            break
        time.sleep(0.05)
    time.sleep(0.3)
    assert processes.count_running() == 1
    asked = [(first, Question(place, "a")), (first, Question(place, "b"))]
    for diagnoses, question in [*asked, (second, Question(place, "d"))]:
        while (job := diagnoses.job(question)) is not None and job.state != "failed":
            processes.stop_all()
            time.sleep(0.05)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "older"}', "\x00"])
def test_a_damaged_answer_is_none(tmp_path: Path, content: str) -> None:
    place = diagnosed.folder_of(tmp_path)
    diagnosed.keep(place, FOUND).write_text(content)
    assert Diagnoses().answer(Question(place)) is None


def test_something_is_left_for_the_page_where_it_is_for_the_diagnosis_itself() -> None:
    assert report.UNEXPLAINED == UNEXPLAINED


def test_something_that_is_no_diagnosis_is_refused() -> None:
    for wrong in ({}, [], None, diagnosed.said(findings=[{"fault": "x"}])):
        with pytest.raises(AnswerError, match="no diagnosis"):
            read_answer(wrong)


def test_runs_are_found_beside_the_store_and_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/one", "here/two", "there/three"):
        (tmp_path / name).mkdir(parents=True)
        diagnosed.folder_of(tmp_path / name, name[-3:])
    (tmp_path / "here" / "none").mkdir()
    url = f"sqlite:///{tmp_path / 'here' / 'one' / 'store.db'}"
    assert set(list_places(url)) == {"one", "two"}
    monkeypatch.setenv("FEDLENS_RUNS", str(tmp_path / "there"))
    assert set(list_places(url)) == {"one", "two", "ree"}


def test_a_fault_is_shown_on_synthetic_samples() -> None:
    samples = [
        {"png": base64_text(one.png), "label": one.requested_class}
        for one in populated.samples(10, seed=1)
    ]
    asked = {"samples": samples, "classes": 10, "most": 4}
    shown = pictures(diagnosed.TURNED, asked)
    assert len(shown) == 4
    assert all(one["before"] != one["after"] for one in shown)
    only = pictures(diagnosed.TURNED | {"classes": [3]}, asked)
    assert [one["label"] for one in only] == ["3"]
    assert pictures(diagnosed.TURNED | {"fault": "of a plug-in"}, asked) == []


def test_shares_and_chances_are_said_in_few_digits() -> None:
    assert [percent(share) for share in (0.311, 0.052, 1.0)] == ["31%", "5.2%", "100%"]
    finding = read_answer(FOUND).findings[0]
    assert "fewer than one in a million" in cards.describe_certainty(finding)
    assert cards.describe_classes(finding, 10) == "All classes alike"
    assert cards.describe_lookalikes(finding) == diagnosed.TURNED["otherwise"]
    assert cards.describe_lookalikes(replace(finding, otherwise="")) == cards.OTHERWISE


def test_classes_stand_by_the_names_that_people_gave_them() -> None:
    bold = "<b>boot</b>"
    swapped = diagnosed.TURNED | {"fault": "swap_labels", "classes": [1, 9]}
    change = {"label": 9, "before": "", "after": "", "change": ""}
    found = diagnosed.said(
        findings=[swapped, diagnosed.UNNAMED],
        deviation={"where": "darker", "shown": [change]},
        class_names=[*"abcdefghi", bold],
    )
    looks = {"swap_labels": [{"before": "", "after": "", "label": "1", "named": "9"}]}
    answer = replace(read_answer(found), looks=looks)
    first, second = (cards.finding_card(one, answer, 10) for one in answer.findings)
    assert "Only in b, &lt;b&gt;boot&lt;/b&gt;" in first
    assert "<figcaption>b, called &lt;b&gt;boot&lt;/b&gt;</figcaption>" in first
    assert "<figcaption>&lt;b&gt;boot&lt;/b&gt;</figcaption>" in second
    assert bold not in first + second
    assert read_answer(answer.to_json()).class_names == answer.class_names


def test_what_the_command_found_is_what_the_dashboard_opens_with(
    place: RunPlace, store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    diagnosed.folder_of(earlier, "run-0")
    config = SimpleNamespace(data=SimpleNamespace(name="embedded"))
    run = SimpleNamespace(path=place.path, store=store_at[0], id="run-1", config=config)
    found = SimpleNamespace(to_json=lambda: FOUND)
    monkeypatch.chdir(tmp_path)
    for given, asked in ((None, ""), ("embedded", ""), ("mnist", "mnist"), ("earlier", earlier)):
        kept = keep_diagnosis(run, found, given)  # type: ignore[arg-type]
        question = Question(place, str(asked))
        assert kept == question.kept_at
        answer = Diagnoses().answer(question)
        assert answer is not None and answer.findings == read_answer(FOUND).findings
        assert len(answer.looks["rotate90"]) == MOST_PICTURED
    before = Question(place, str(earlier)).kept_at
    (earlier / "releases" / "round-000002.safetensors").write_bytes(b"more sums")
    assert Question(place, str(earlier)).kept_at != before, "the reference has changed"
    asked_of = place_of_diagnosis(run)  # type: ignore[arg-type]
    assert asked_of == Question(place).kept_at
    (place.path / "releases" / "round-000003.safetensors").write_bytes(b"released meanwhile")
    assert keep_diagnosis(run, found, place=asked_of) == asked_of  # type: ignore[arg-type]
    assert Diagnoses().answer(Question(place)) is None


@pytest.mark.law("3: a diagnosis looks at public records only")
def test_the_test_images_of_ones_own_data_are_neither_offered_nor_looked_at(
    open_page: Opener, store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []
    monkeypatch.setattr(Diagnoses, "ask", lambda _self, question, *_: asked.append(question))
    changes = {"config": {"data.name": "npz:patients.npz"}, "data_name": "npz:patients.npz"}
    populated.whole_run(store_at[1], "run-1", **changes)
    diagnosed.keep(diagnosed.folder_of(tmp_path), FOUND)
    for page in ("diagnosis", "run", "runs"):
        text = page_text(open_page(page, run="run-1"))
        assert "Turned left by 90 degrees" not in text
    app = open_page("diagnosis", run="run-1")
    assert "Choose what the run is compared with" in page_text(app)
    assert not any("patients" in option for box in app.selectbox for option in box.options[:1])
    assert not asked
