"""Labelling: an append-only history, one answer in force for each person and sample."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import pytest
from store_builders import a_batch, a_ledger_row, a_project, a_run, paid_run, some_samples

from fedlens.store import (
    Annotation,
    LabellingProgress,
    LabelRecord,
    SampleFilter,
    Store,
    StoreError,
)


@dataclass
class Bench:
    """A project over some samples, with one annotator."""

    store: Store
    project: int
    ann: int
    labels: list[int]
    samples: list[int]
    _sent: list[str] = field(default_factory=list)

    def answer(self, sample: int, label: int | None = None, **changes: Any) -> Annotation:
        self._sent.append("")
        fields: dict[str, Any] = {
            "client_uuid": f"uuid-{len(self._sent)}",
            "project_id": self.project,
            "sample_id": sample,
            "user_id": self.ann,
            "label_id": label,
            "skip_reason": "unclear" if label is None else None,
            "lead_ms": 350,
        }
        return Annotation(**fields | changes)

    def queue(self, user: int | None = None, limit: int = 1000) -> list[int]:
        found = self.store.queue(self.project, self.ann if user is None else user, limit)
        return [sample.sample_id for sample in found]

    def progress(self, user: int | None = None) -> LabellingProgress:
        return self.store.progress(self.project, self.ann if user is None else user)


@pytest.fixture
def bench(store: Store) -> Bench:
    paid_run(store)
    store.add_batch(a_batch(3, purpose="strip"), some_samples(3, seed=9))
    batch_id = store.add_batch(a_batch(12), some_samples(12))
    project = store.create_project(a_project())
    samples = [s.sample_id for s in store.samples(SampleFilter(batch_id=batch_id))]
    labels = [label.label_id for label in store.labels(project)]
    return Bench(store, project, store.ensure_user("ann"), labels, samples)


def test_projects_keep_their_labels_in_order(bench: Bench) -> None:
    (there,) = bench.store.projects()
    assert there == bench.store.project(bench.project)
    labels = bench.store.labels(bench.project)
    assert there.labels == tuple(labels)
    assert [(label.key, label.name, label.kind) for label in labels] == [
        (label.key, label.name, label.kind) for label in a_project().labels
    ]


def test_making_a_project_or_an_annotator_again_changes_nothing(bench: Bench) -> None:
    assert bench.store.create_project(a_project()) == bench.project
    assert bench.store.ensure_user("ann") == bench.ann
    assert bench.store.ensure_user("bob") != bench.ann
    with pytest.raises(StoreError, match="instructions"):
        bench.store.create_project(a_project(instructions="look twice"))
    with pytest.raises(StoreError, match="other labels"):
        bench.store.create_project(a_project(labels=(LabelRecord(key="1", name="one"),)))
    with pytest.raises(StoreError, match="no such run"):
        bench.store.create_project(a_project(name="second", run_id="nowhere"))
    with pytest.raises(StoreError, match="name"):
        bench.store.ensure_user("  ")
    assert len(bench.store.labels(bench.project)) == 3


def test_the_queue_is_stable_and_shrinks_by_what_is_answered(bench: Bench) -> None:
    assert bench.queue() == bench.queue() == bench.samples
    assert bench.queue(limit=2) == bench.samples[:2]
    bench.store.annotate(bench.answer(bench.samples[0], bench.labels[0]))
    bench.store.annotate(bench.answer(bench.samples[2]))
    assert bench.queue() == [bench.samples[1], *bench.samples[3:]]
    assert bench.progress() == LabellingProgress(total=12, done=1, skipped=1)
    assert bench.progress().left == 10
    bob = bench.store.ensure_user("bob")
    assert bench.queue(bob) == bench.samples
    assert bench.progress(bob) == LabellingProgress(total=12, done=0, skipped=0)


def test_labels_outside_the_queue_do_not_count_as_progress(bench: Bench) -> None:
    (strip, *_) = bench.store.samples(SampleFilter(purpose="strip"))
    given = bench.store.annotate(bench.answer(strip.sample_id, bench.labels[0]))
    assert bench.store.annotations(bench.project) == [given]
    assert bench.progress() == LabellingProgress(total=12, done=0, skipped=0)


def test_a_random_order_is_the_same_for_all_and_differs_by_seed(bench: Bench) -> None:
    store = bench.store
    store.add_batch(a_batch(200, seed=5), some_samples(200, seed=5))
    ann, bob = bench.ann, store.ensure_user("bob")
    orders = []
    for seed in (1, 2):
        project = store.create_project(a_project(name=f"p{seed}", order="random", seed=seed))
        order = [s.sample_id for s in store.queue(project, ann, 1000)]
        assert order == [s.sample_id for s in store.queue(project, bob, 1000)]
        assert [s.sample_id for s in store.queue(project, ann, 7)] == order[:7]
        orders.append(order)
    stored = [s.sample_id for s in store.samples(SampleFilter(purpose="curated"))]
    assert sorted(orders[0]) == sorted(orders[1]) == stored
    for one, other in ((orders[0], orders[1]), (orders[0], stored), (orders[1], stored)):
        assert abs(_rank_correlation(one, other)) < 0.3  # 4 standard deviations of a shuffle


def _rank_correlation(one: list[int], other: list[int]) -> float:
    """Spearman's, written out: 1 - 6 sum d^2 / (n^3 - n)."""
    place = {sample: rank for rank, sample in enumerate(other)}
    size = len(one)
    squares = sum((rank - place[sample]) ** 2 for rank, sample in enumerate(one))
    return 1 - 6 * squares / (size**3 - size)


def test_sending_an_answer_again_is_no_second_answer(bench: Bench) -> None:
    answer = bench.answer(bench.samples[0], bench.labels[1])
    first = bench.store.annotate(answer)
    later = bench.store.annotate(bench.answer(bench.samples[0], bench.labels[2]))
    assert bench.store.annotate(answer) == first
    assert bench.store.annotations(bench.project) == [later]
    assert bench.store.annotation_history(bench.project) == [first, later]
    with pytest.raises(StoreError, match="label_id"):
        bench.store.annotate(changed(answer, label_id=bench.labels[0]))


def test_a_second_answer_supersedes_the_first_and_keeps_it(bench: Bench) -> None:
    sample = bench.samples[0]
    first = bench.store.annotate(bench.answer(sample, bench.labels[0], lead_ms=None))
    second = bench.store.annotate(bench.answer(sample, None))
    assert (first.supersedes_id, second.supersedes_id) == (None, first.annotation_id)
    assert bench.store.annotations(bench.project) == [second]
    assert bench.store.annotation_history(bench.project) == [first, second]
    assert bench.progress() == LabellingProgress(total=12, done=0, skipped=1)
    assert (first.lead_ms, second.lead_ms, second.skip_reason) == (None, 350, "unclear")


def test_undo_appends_and_brings_the_sample_back_to_its_place(bench: Bench) -> None:
    store, samples = bench.store, bench.samples
    kept = [store.annotate(bench.answer(s, bench.labels[0])) for s in samples[:3]]
    assert store.undo(bench.project, bench.ann) == kept[2]
    assert store.undo(bench.project, bench.ann) == kept[1]
    assert bench.queue() == samples[1:]
    assert store.annotations(bench.project) == kept[:1]
    history = store.annotation_history(bench.project)
    assert history[:3] == kept
    assert [(row.is_undo, row.supersedes_id) for row in history[3:]] == [
        (True, kept[2].annotation_id),
        (True, kept[1].annotation_id),
    ]
    again = store.annotate(bench.answer(samples[1], bench.labels[1]))
    assert again.supersedes_id == history[4].annotation_id
    assert store.annotations(bench.project) == [kept[0], again]


def test_undo_ends_with_nothing_left_and_touches_nobody_else(bench: Bench) -> None:
    bob = bench.store.ensure_user("bob")
    assert bench.store.undo(bench.project, bench.ann) is None
    bench.store.annotate(bench.answer(bench.samples[0], bench.labels[0]))
    bobs = bench.store.annotate(bench.answer(bench.samples[0], bench.labels[1], user_id=bob))
    assert bench.store.undo(bench.project, bench.ann) is not None
    assert bench.store.undo(bench.project, bench.ann) is None
    assert bench.store.annotations(bench.project) == [bobs]


def test_undoing_again_with_the_same_uuid_takes_back_nothing_more(bench: Bench) -> None:
    store = bench.store
    first, second = (store.annotate(bench.answer(s, bench.labels[0])) for s in bench.samples[:2])
    assert store.undo(bench.project, bench.ann, "undo-1") == second
    assert store.undo(bench.project, bench.ann, "undo-1") == second
    assert store.annotations(bench.project) == [first]
    with pytest.raises(StoreError, match="client_uuid"):
        store.undo(bench.project, bench.ann, first.client_uuid)
    with pytest.raises(StoreError, match="undo-1"):
        store.annotate(bench.answer(bench.samples[1], bench.labels[0], client_uuid="undo-1"))


def test_labels_and_samples_of_elsewhere_are_refused(bench: Bench) -> None:
    store = bench.store
    store.create_run(a_run(run_id="run-2"))
    store.record_progress(ledger=[a_ledger_row(run_id="run-2")])
    batch_id = store.add_batch(a_batch(1, run_id="run-2"), some_samples(1))
    (foreign,) = store.samples(SampleFilter(batch_id=batch_id))
    other = store.create_project(a_project(name="other"))
    other_label = store.labels(other)[0].label_id
    mine = bench.samples[0]
    refused = [
        (bench.answer(mine, other_label), "label_id"),
        (bench.answer(mine, 10**6), "label_id"),
        (bench.answer(foreign.sample_id, bench.labels[0]), "sample_id"),
        (bench.answer(10**6, bench.labels[0]), "sample_id"),
        (bench.answer(mine, bench.labels[0], user_id=10**6), "user_id"),
        (bench.answer(mine, bench.labels[0], project_id=10**6), "project_id"),
    ]
    for answer, named in refused:
        with pytest.raises(StoreError, match=named):
            store.annotate(answer)
    assert store.annotation_history(bench.project) == []
    for call in (store.queue, store.progress, store.undo):
        with pytest.raises(StoreError, match="user_id"):
            call(bench.project, 10**6)
        with pytest.raises(StoreError, match="project_id"):
            call(10**6, bench.ann)


def test_samples_are_found_by_the_label_in_force(bench: Bench) -> None:
    store, (zero, one, _), sample = bench.store, bench.labels, bench.samples[4]
    store.annotate(bench.answer(sample, zero))
    store.annotate(bench.answer(bench.samples[5], zero))
    store.annotate(bench.answer(bench.samples[5], one))
    assert [s.sample_id for s in store.samples(SampleFilter(label_id=zero))] == [sample]
    assert store.count_samples(SampleFilter(label_id=one)) == 1
    store.undo(bench.project, bench.ann)
    assert store.count_samples(SampleFilter(label_id=one)) == 0


def test_any_mix_of_answers_and_undos_agrees_with_a_plain_model(bench: Bench) -> None:
    """Oracle: per annotator a list of (sample, label) in force, in the order given."""
    draw = random.Random(11)
    users = [bench.ann, bench.store.ensure_user("bob")]
    model: dict[int, list[tuple[int, int | None]]] = {user: [] for user in users}
    for _ in range(120):
        user = draw.choice(users)
        if draw.random() < 0.3:
            taken = bench.store.undo(bench.project, user)
            expected = model[user].pop() if model[user] else None
            assert (taken and (taken.sample_id, taken.label_id)) == expected
            continue
        sample, label = draw.choice(bench.samples), draw.choice([*bench.labels, None])
        bench.store.annotate(bench.answer(sample, label, user_id=user))
        model[user] = [item for item in model[user] if item[0] != sample] + [(sample, label)]
    there = bench.store.annotations(bench.project)
    for user in users:
        mine = [(row.sample_id, row.label_id) for row in there if row.user_id == user]
        assert mine == model[user]
        answered = {sample for sample, _ in mine}
        assert bench.queue(user) == [s for s in bench.samples if s not in answered]
        skipped = sum(label is None for _, label in mine)
        assert bench.progress(user) == LabellingProgress(
            total=12, done=len(mine) - skipped, skipped=skipped
        )
