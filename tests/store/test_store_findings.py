"""Findings keep their history and freeze their evidence; tags and pins are found again."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect
from store_builders import a_batch, a_project, a_run, paid_run, some_samples

from fedlens.foundation.dates import today
from fedlens.store import Annotation, FindingRecord, SampleFilter, Store, StoreError


def a_finding(store: Store, **changes: str) -> int:
    fields = {"run_id": "run-1", "hypothesis": "turned in 31% of users", "fault": "rotate90"}
    return store.add_finding(FindingRecord(**fields | changes), author="ada")


def filled(store: Store) -> list[int]:
    """The ids of four samples of a run."""
    paid_run(store)
    store.add_batch(a_batch(count=4), some_samples(4))
    return [one.sample_id for one in store.samples(SampleFilter(run_id="run-1"))]


@pytest.mark.law("7: a finding keeps its history")
def test_a_finding_keeps_all_that_happened_to_it_and_who_did_it(store: Store) -> None:
    samples = filled(store)
    finding = a_finding(store)
    store.set_finding_status(finding, "open", author="ada", note=" Camera of version 2.0? ")
    store.set_finding_status(finding, "confirmed", author="ben", note="by a probe")
    store.set_finding_status(finding, "confirmed", author="ben")  # says nothing new
    store.reword_finding(finding, "photographs without orientation", author="ada")
    assert store.add_samples_to_finding(finding, samples[:2], author="ada") == 2
    assert store.add_samples_to_finding(finding, samples[:3], author="ada") == 1
    for _ in range(2):  # the same answer is kept once
        store.add_evidence(finding, "probe", {"value": 0.3, "epsilon": 0.5}, author="ada")
    history = store.finding_history(finding)
    kinds = ["opened", "note", "status", "reworded", "samples", "samples", "probe"]
    assert [one.kind for one in history] == kinds
    assert [one.author for one in history][:3] == ["ada", "ada", "ben"]
    assert history[0].content["hypothesis"] == "turned in 31% of users"
    assert history[1].content == {"text": "Camera of version 2.0?"}
    assert history[2].content == {"status": "confirmed", "text": "by a probe"}
    digests = [one["sha256"] for one in history[4].content["samples"]]
    assert digests == [store.sample(one).sha256 for one in samples[:2]]
    there = store.finding(finding)
    assert (there.status, there.hypothesis, there.author, there.fault) == (
        "confirmed",
        "photographs without orientation",
        "ada",
        "rotate90",
    )
    assert there.created_at < there.changed_at == history[-1].at


def test_findings_are_found_by_run_status_and_author_the_last_changed_first(store: Store) -> None:
    paid_run(store)
    store.create_run(a_run(run_id="run-2", name="second"))
    first, second = a_finding(store), a_finding(store, run_id="run-2")
    assert [one.finding_id for one in store.findings()] == [second, first]
    store.set_finding_status(first, "refuted", author="ben")
    assert [one.finding_id for one in store.findings()] == [first, second]
    assert [one.finding_id for one in store.findings(run_id="run-2")] == [second]
    assert [one.finding_id for one in store.findings(status="refuted")] == [first]
    assert store.findings(author="ben") == []


def test_what_cannot_be_a_finding_or_its_evidence_is_refused(store: Store) -> None:
    paid_run(store)
    with pytest.raises(StoreError, match="hypothesis"):
        a_finding(store, hypothesis="  ")
    with pytest.raises(StoreError, match="no such run"):
        a_finding(store, run_id="other")
    finding = a_finding(store)
    with pytest.raises(StoreError, match="status"):
        store.set_finding_status(finding, "solved", author="ada")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no such sample"):
        store.add_samples_to_finding(finding, [99], author="ada")
    with pytest.raises(StoreError, match="JSON"):
        store.add_evidence(finding, "probe", {"value": float("nan")}, author="ada")
    with pytest.raises(StoreError, match="no such finding"):
        store.set_finding_status(99, "open", author="ada", note="words")
    with pytest.raises(StoreError, match="author"):
        store.set_finding_status(finding, "open", author=" ", note="words")
    assert [one.kind for one in store.finding_history(finding)] == ["opened"]


def test_tags_are_counted_filtered_by_and_taken_away(store: Store) -> None:
    samples = filled(store)
    assert store.tag_samples(samples[:2], " turned ", author="ada") == 2
    assert store.tag_samples(samples[:3], "turned", author="ben") == 1
    store.tag_samples(samples[:1], "blurred", author="ada")
    assert store.tags("run-1") == {"blurred": 1, "turned": 3}
    assert store.sample_marks(samples)[1] == {
        samples[0]: ["blurred", "turned"],
        samples[1]: ["turned"],
        samples[2]: ["turned"],
    }
    wanted = SampleFilter(run_id="run-1", tag="turned")
    assert [one.sample_id for one in store.samples(wanted)] == samples[:3]
    assert store.count_samples(SampleFilter(tag="blurred")) == 1
    assert store.untag_samples(samples[1:], "turned", author="ben") == 2
    assert store.tags("run-1") == {"blurred": 1, "turned": 1}
    for wrong in ("", "x" * 41, "<b>", "a,b"):
        with pytest.raises(StoreError, match="tag"):
            store.tag_samples(samples[:1], wrong, author="ada")
    with pytest.raises(StoreError, match="no such sample"):
        store.tag_samples([99], "turned", author="ada")


def test_the_history_of_tags_says_who_did_what_on_which_day_and_stays(store: Store) -> None:
    samples = filled(store)
    assert store.tag_history("run-1") == []
    store.tag_samples(samples[:3], "turned", author="ada")
    store.tag_samples(samples, "turned", author="ben")  # three have it already
    store.untag_samples(samples[1:], "turned", author="cleo")
    store.untag_samples(samples[1:], "turned", author="cleo")  # none has it any more
    store.tag_samples(samples[1:2], "turned", author="ada")
    said = [(one.actor, one.tag, one.added, one.samples) for one in store.tag_history("run-1")]
    assert said == [
        ("ada", "turned", True, 4),  # of one day, together
        ("cleo", "turned", False, 3),
        ("ben", "turned", True, 1),
    ]
    of_one = store.tag_history("run-1", sample_id=samples[1])
    assert [(one.actor, one.added, one.samples) for one in of_one] == [
        ("ada", True, 1),
        ("cleo", False, 1),
        ("ada", True, 1),
    ]
    assert {one.day for one in of_one} == {today()}
    assert len(store.tag_history("run-1", limit=1)) == 1
    with pytest.raises(StoreError, match="no such run"):
        store.tag_history("other")
    with pytest.raises(StoreError, match="no such sample"):
        store.tag_samples([samples[0], 99], "lost", author="ada")
    assert "lost" not in {one.tag for one in store.tag_history("run-1")}, "all of it or nothing"


def test_a_finding_is_opened_with_its_diagnosis_or_not_at_all(store: Store) -> None:
    paid_run(store)
    record = FindingRecord(run_id="run-1", hypothesis="turned", fault="rotate90")
    answer = {"diagnosis": {"findings": [{"certainty": 0.9}]}, "looks": {}}
    finding = store.add_finding(record, author="ada", diagnosis=answer)
    opened, kept = store.finding_history(finding)
    assert (opened.kind, kept.kind, kept.content) == ("opened", "diagnosis", answer)
    for wrong in ({"share": float("nan")}, {"looks": "x" * 2_000_001}):
        with pytest.raises(StoreError, match="content"):
            store.add_finding(record, author="ada", diagnosis=wrong)
    assert [one.finding_id for one in store.findings()] == [finding]


def test_the_answers_about_a_sample_are_those_in_force_of_all_projects(store: Store) -> None:
    samples, user = filled(store), store.ensure_user("ada")
    for name, said in (("first", ("0", "1")), ("second", (None,))):
        project = store.create_project(a_project(name=name))
        labels = {one.key: one for one in store.labels(project)}
        for turn, key in enumerate(said):  # the last one supersedes those before it
            answer = Annotation(
                client_uuid=f"{name}-{turn}",
                project_id=project,
                sample_id=samples[0],
                user_id=user,
                label_id=None if key is None else labels[key].label_id,
                skip_reason="unclear" if key is None else None,
            )
            store.annotate(answer)
        second = labels["1"].name
    assert store.labels_on(samples[0]) == [("first", second), ("second", None)]
    assert store.labels_on(samples[1]) == []


def test_a_page_of_a_large_batch_is_found_by_an_index_alone(store: Store) -> None:
    """Sorting a million samples took a minute."""
    filled(store)
    with store._reading() as session:
        names = {one["name"] for one in inspect(session.connection()).get_indexes("samples")}
    assert {"ix_samples_stored", "ix_samples_class"} <= names
    ids = [one.sample_id for one in store.samples(SampleFilter(run_id="run-1"))]
    for offset in range(4):
        page = store.samples(SampleFilter(run_id="run-1"), offset=offset, limit=2)
        assert [one.sample_id for one in page] == ids[offset : offset + 2]


def test_one_run_is_pinned_for_all_over_data_of_its_name(store: Store) -> None:
    for name in ("run-1", "run-2", "run-3"):
        store.create_run(a_run(run_id=name, name=name))
    store.create_run(a_run(run_id="other", name="other", data_name="elsewhere"))
    assert not store.pinned_references()
    store.pin_reference("run-1", author="ada")
    store.pin_reference("run-2", author="ben")
    assert list(store.pinned_references().values()) == ["run-2"]
    store.unpin_reference("run-1")  # another is pinned
    assert list(store.pinned_references().values()) == ["run-2"]
    store.unpin_reference("run-2")
    assert not store.pinned_references()


def test_a_view_is_saved_under_a_name_replaced_and_deleted(store: Store) -> None:
    store.save_view(" failed ", "status=Failed", author="ada")
    store.save_view("dear", "sort=-epsilon", author="ada")
    store.save_view("failed", "status=Failed&sort=users", author="ben")
    found = [(one.name, one.address, one.author) for one in store.saved_views()]
    assert found == [
        ("dear", "sort=-epsilon", "ada"),
        ("failed", "status=Failed&sort=users", "ben"),
    ]
    store.delete_view("failed")
    store.delete_view("never there")
    assert [one.name for one in store.saved_views()] == ["dear"]
    for name, address in (("", "a=1"), ("n" * 61, "a=1"), ("long", "a" * 1001)):
        with pytest.raises(StoreError, match="cannot be stored"):
            store.save_view(name, address, author="ada")
