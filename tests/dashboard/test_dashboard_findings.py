"""Findings: kept from a diagnosis by one click, judged, filtered, and shared as one safe file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import diagnosed
import populated
import pytest
from streamlit.testing.v1 import AppTest
from test_dashboard_diagnosis import page_text

from fedlens.cli import main
from fedlens.dashboard.faults.answer import read_answer
from fedlens.dashboard.faults.evidence import freeze_diagnosis, probes_of, thaw_diagnosis
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.faults.report import build_report
from fedlens.store import FindingRecord, Store

Opener = Callable[..., AppTest]
FOUND = diagnosed.said(findings=[diagnosed.TURNED])
EVIL = "<script>alert(1)</script>"
PROBE = {
    "probe": "better_after:rotate270",
    "says": "users whose records are recognised better once turned",
    "value": 0.29,
    "low": 0.24,
    "high": 0.34,
    "wider_low": 0.22,
    "wider_high": 0.36,
    "users": 1000,
    "epsilon": 0.3,
    "delta": 1e-6,
    "bayesian_epsilon": 0.2,
    "bayesian_delta": 1e-10,
    "together": 2.1,
    "run_dir": "/somewhere/private",
}


@pytest.fixture
def place(store_at: tuple[str, Store], tmp_path: Path) -> RunPlace:
    """A run with a kept diagnosis and a probe beside it; its name holds a script."""
    populated.whole_run(store_at[1], "run-1", name=EVIL)
    found = diagnosed.folder_of(tmp_path)
    diagnosed.keep(found, FOUND)
    beside = tmp_path.parent / f"{tmp_path.name}-probe-1"
    beside.mkdir()
    (beside / "probe.json").write_text(json.dumps(PROBE))
    return found


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def test_one_click_keeps_a_diagnosis_card_as_a_finding_with_its_evidence(
    open_page: Opener, place: RunPlace, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    app = open_page("diagnosis", run="run-1")
    app.button(key="keep-rotate90").click().run()
    (finding,) = store.findings()
    assert finding.hypothesis == "turned left by 90 degrees in 31% of users"
    assert (finding.run_id, finding.fault, finding.status) == ("run-1", "rotate90", "open")
    assert finding.author == "tester"
    opened, kept, answered = store.finding_history(finding.finding_id)
    assert (opened.kind, kept.kind, answered.kind) == ("opened", "diagnosis", "probe")
    assert answered.content["value"] == PROBE["value"]
    assert thaw_diagnosis(kept.content) == read_answer(FOUND)
    assert "Keep as a finding" not in labels(app), "it is kept once"


OTHERS = [
    {"fault": "tilt", "says": "tilted by 80 degrees", "likelihood": 0.25},
    {"fault": "mirror", "says": "mirrored", "likelihood": 0.0625},
]


@pytest.mark.law("7: a finding keeps its history")
def test_a_later_diagnosis_changes_nothing_of_a_filed_finding(
    open_page: Opener, place: RunPlace, store_at: tuple[str, Store]
) -> None:
    """Neither its share nor what else it could have been, nor how sure that was."""
    store = store_at[1]
    doubtful = diagnosed.TURNED | {"alternatives": OTHERS, "certainty": 1 / 1.3125}
    diagnosed.keep(place, diagnosed.said(findings=[doubtful]))
    open_page("diagnosis", run="run-1").button(key="keep-rotate90").click().run()
    (finding,) = store.findings()
    number = str(finding.finding_id)
    filed = ("31%", "Tilted by 80 degrees, 25% as likely", "That it is this one: 76%")
    before = page_text(open_page("findings", finding=number))
    assert all(words in before for words in filed)
    diagnosed.keep(place, diagnosed.said(findings=[diagnosed.TURNED | {"share": 0.02}]))
    assert page_text(open_page("findings", finding=number)) == before
    app = open_page("findings", finding=number)
    next(one for one in app.button if one.label.startswith("The run's diagnosis")).click().run()
    after = page_text(app)
    assert "As it stood when it was kept" in after
    assert after.index(filed[1]) < after.index("2.0%")
    assert [one.label for one in app.expander if "later diagnosis" in one.label]
    html = build_report(store, finding.finding_id)
    assert html.index("As it stood when it was kept") < html.index(filed[1])
    assert html.index(filed[1]) < html.index("A later diagnosis") < html.index("2.0%")


def test_what_is_frozen_is_thawed_the_same() -> None:
    doubtful = diagnosed.TURNED | {"alternatives": OTHERS, "certainty": 0.7}
    answer = read_answer(diagnosed.said(findings=[doubtful]))
    assert [one.fault for one in answer.findings[0].alternatives] == ["tilt", "mirror"]
    assert answer.findings[0].certainty == 0.7
    assert thaw_diagnosis(json.loads(json.dumps(freeze_diagnosis(answer, "rotate90")))) == answer


def test_who_tagged_what_is_on_the_page_of_samples(
    open_page: Opener, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.whole_run(store, "run-1")
    first, *_, last = (one.sample_id for one in store.samples(populated.of_run("run-1")))
    assert "History of tags" not in [one.label for one in open_page("samples").expander]
    store.tag_samples([first, last], "turned", author=EVIL)
    store.untag_samples([last], "turned", author="ben")
    app = open_page("samples", run="run-1")
    assert "History of tags" in [one.label for one in app.expander]
    text = page_text(app)
    assert "given to 2 samples" in text and "taken from 1 sample" in text
    assert "ben" in text
    assert EVIL not in "".join(one.body for one in app.get("html") if hasattr(one, "body"))


def test_a_finding_is_judged_and_gets_its_probe_and_its_diagnosis(
    open_page: Opener, place: RunPlace, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    number = store.add_finding(
        FindingRecord(run_id="run-1", hypothesis="turned", fault="rotate90"), author="ada"
    )
    app = open_page("findings", finding=str(number))
    app.button(key="probe-0").click().run()
    next(one for one in app.button if one.label.startswith("The run's diagnosis")).click().run()
    app.radio[0].set_value("confirmed")
    app.text_area[0].set_value(EVIL)
    next(one for one in app.button if one.label == "Save").click().run()
    kinds = [(one.kind, one.author) for one in store.finding_history(number)]
    assert kinds == [
        ("opened", "ada"),
        ("probe", "tester"),
        ("diagnosis", "tester"),
        ("status", "tester"),
    ]
    text = page_text(app)
    for expected in (
        "0.29 (95%: 0.24 to 0.34)",
        "DP ε = 0.3",
        "Could not have been seen",
        "26% to",
    ):
        assert expected in text
    assert EVIL not in text and "&lt;script&gt;" in text


def test_findings_are_filtered_by_the_address(
    open_page: Opener, place: RunPlace, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    for words, author in (("dark images", "ada"), ("swapped labels", "ben")):
        number = store.add_finding(FindingRecord(run_id="run-1", hypothesis=words), author=author)
    store.set_finding_status(number, "refuted", author="ben")
    assert "dark images" in page_text(open_page("findings"))
    shown = page_text(open_page("findings", status="refuted", author="ben", run="run-1"))
    assert "swapped labels" in shown and "dark images" not in shown


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_other_roles_read_and_write_nothing(
    open_page: Opener, place: RunPlace, store_at: tuple[str, Store], role: str
) -> None:
    store = store_at[1]
    number = store.add_finding(FindingRecord(run_id="run-1", hypothesis="turned"), author="ada")
    store.add_account("boss", "admin", actor="test")
    store.add_account("tester", role, actor="test")  # type: ignore[arg-type]
    assert "turned" in page_text(open_page("findings", finding=str(number)))
    for page, query in (
        ("findings", {"finding": str(number)}),
        ("findings", {}),
        ("diagnosis", {}),
    ):
        app = open_page(page, **query)
        assert not {"Save", "Keep it", "Keep as a finding"} & set(labels(app))
    assert len(store.finding_history(number)) == 1


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def full_finding(store: Store, place: RunPlace) -> int:
    """One with a diagnosis, a probe, samples, and a script in every text."""
    number = store.add_finding(
        FindingRecord(run_id="run-1", hypothesis=EVIL, fault="rotate90"), author="ada"
    )
    pair = {"before": "AAAA", "after": "BBBB", "label": EVIL, "named": "3"}
    looks = {"rotate90": [pair], "blur": [pair]}
    answer = read_answer(FOUND | {"releases": [EVIL]}, looks)
    store.add_evidence(number, "diagnosis", freeze_diagnosis(answer, "rotate90"), author="ada")
    store.add_evidence(number, "probe", probes_of(place)[0] | {"says": EVIL}, author="ada")
    first = [one.sample_id for one in store.samples(populated.of_run("run-1"), limit=3)]
    store.add_samples_to_finding(number, first, author="ada")
    store.set_finding_status(number, "open", author="ada", note=f"line one\n{EVIL}")
    return number


def test_a_report_is_one_file_without_script_that_says_all(
    place: RunPlace, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    html = build_report(store, full_finding(store, place))
    tags = Tags()
    tags.feed(html)
    assert {name for name, _ in tags.seen}.isdisjoint(
        {"script", "iframe", "object", "link", "form"}
    )
    sources = [attrs["src"] or "" for _, attrs in tags.seen if "src" in attrs]
    assert len(sources) == 5, "a pair of the fault, three samples"
    assert all(one.startswith("data:image/png;base64,") for one in sources)
    assert not any(key.startswith("on") for _, attrs in tags.seen for key in attrs)
    assert not re.search(r"https?://|url\(|@import", html)
    assert html.count("&lt;script&gt;") >= 6 and "private" not in re.findall(r"/somewhere\S*", html)
    for expected in (
        "Each user is protected with (8, 1e-05)-differential privacy.",
        "BDP ε corrected",
        "drawn like those enrolled",
        "Could not have been seen",
        "0.29 (95%: 0.24 to 0.34)",
        "26% to 36%",
    ):
        assert expected in html


def test_a_report_without_a_diagnosis_claims_nothing_of_what_was_not_seen(
    place: RunPlace, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    number = store.add_finding(FindingRecord(run_id="run-1", hypothesis="dark"), author="ada")
    assert "no evidence of absence" in build_report(store, number)


def test_the_command_lists_findings_and_writes_a_report(
    capsys: pytest.CaptureFixture[str], place: RunPlace, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    url, store = store_at
    number = full_finding(store, place)
    assert main(["findings", "--store", url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    (one,) = said["findings"]
    assert one["finding"] == number and one["status"] == "open"
    assert [entry["kind"] for entry in one["history"]][1:3] == ["diagnosis", "probe"]
    file = tmp_path / "report.html"
    assert main(["findings", "--store", url, "--report", str(file), "--json"]) == 0
    assert file.read_text(encoding="utf-8") == build_report(store, number)
    for wrong in (
        ["findings"],
        ["findings", "--store", url, "--report", "report.pdf"],
        ["findings", "--store", url, "--finding", "99"],
        ["findings", "--store", url, "--status", "mended", "--report", str(file)],
    ):
        assert main(wrong) == 2


def test_a_pinned_run_is_the_default_of_diagnosis_and_comparison_and_on_its_card(
    open_page: Opener, store_at: tuple[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at[1]
    places = {}
    for name in ("run-1", "run-2", "run-3"):
        populated.whole_run(store, name)
        (tmp_path / "runs" / name).mkdir(parents=True)
        places[name] = diagnosed.folder_of(tmp_path / "runs" / name, name)
    monkeypatch.setenv("FEDLENS_RUNS", str(tmp_path / "runs"))
    diagnosed.keep(places["run-3"], diagnosed.said())
    diagnosed.keep(places["run-3"], FOUND, str(places["run-2"].path))
    assert "No fault found" in page_text(open_page("diagnosis", run="run-3"))
    app = open_page("run", run="run-2")
    app.button(key="pin-False").click().run()
    assert store.pinned_references() == {"embedded": "run-2"}
    assert "Turned left" in page_text(open_page("diagnosis", run="run-3"))
    assert "No fault found" in page_text(open_page("diagnosis", run="run-3", against="own"))
    assert open_page("compare", run="run-3").query_params["with"] == "run-2"
    assert page_text(open_page("runs")).count("pinned reference") == 1
    app = open_page("run", run="run-2")
    assert app.button(key="pin-True").label == "Unpin as reference"
    app.button(key="pin-True").click().run()
    assert store.pinned_references() == {}
