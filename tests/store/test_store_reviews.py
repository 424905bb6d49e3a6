"""Agreement by the published tables, decisions, and what a sample counts as."""

from __future__ import annotations

import math
import uuid

import numpy as np
import pytest
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import Adjudication, Annotation, SampleFilter, Store, StoreError
from fedlens.store.agreement import (
    alpha_with_interval,
    cohen_kappa,
    krippendorff_alpha,
    share_interval,
)
from fedlens.store.reviews import label_counts, pairwise_kappas
from fedlens.store.tasks import majority

# Krippendorff (2011), section C: 12 units, 4 observers, nominal alpha .743.
PUBLISHED = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)


def counted(table) -> np.ndarray:
    counts = np.zeros((len(table[0]), 5), np.int64)
    for rater in table:
        for unit, value in enumerate(rater):
            if value is not None:
                counts[unit, value - 1] += 1
    return counts


def test_alpha_is_the_published_one() -> None:
    assert krippendorff_alpha(counted(PUBLISHED)) == pytest.approx(0.743, abs=5e-4)


def test_alpha_s_interval_holds_it_and_narrows_with_more_samples() -> None:
    few = alpha_with_interval(counted(PUBLISHED))
    many = alpha_with_interval(np.tile(counted(PUBLISHED), (20, 1)))
    assert few.low <= few.value <= few.high
    assert few.items == 11
    assert many.high - many.low < (few.high - few.low) / 3


def test_alpha_is_nothing_without_two_answers_or_two_labels() -> None:
    assert math.isnan(krippendorff_alpha(np.array([[1, 0], [0, 1]])))
    assert math.isnan(alpha_with_interval(np.array([[2, 0], [3, 0]])).value)
    assert math.isnan(krippendorff_alpha(np.zeros((0, 3), np.int64)))


def test_kappa_is_cohen_s() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: (.7 - .5) / (1 - .5)
    pairs = [(0, 0)] * 20 + [(0, 1)] * 5 + [(1, 0)] * 10 + [(1, 1)] * 15
    assert cohen_kappa(pairs, 2) == pytest.approx(0.4)
    assert cohen_kappa([(0, 0), (1, 1)], 2) == 1
    assert math.isnan(cohen_kappa([], 2))
    assert math.isnan(cohen_kappa([(0, 0)], 2))


def test_a_share_s_interval_is_wilson_s() -> None:
    low, high = share_interval(10, 100)
    assert (low, high) == (pytest.approx(0.0552, abs=1e-4), pytest.approx(0.1744, abs=1e-4))
    assert share_interval(0, 0) == (0, 1)
    assert share_interval(0, 50)[0] == pytest.approx(0)


@pytest.mark.parametrize(
    ("labels", "winner"),
    [([1, 1, 2], 1), ([1, 2], None), ([None, 2], 2), ([None], None), ([], None)],
)
def test_the_majority_decides_and_a_tie_does_not(labels, winner) -> None:
    assert majority(labels) == winner


@pytest.fixture
def desk(store: Store) -> tuple[Store, int, list[int], list[int]]:
    paid_run(store)
    store.add_batch(a_batch(4), some_samples(4))
    project = store.create_project(a_project())
    samples = [s.sample_id for s in store.samples(SampleFilter())]
    labels = [label.label_id for label in store.labels(project)]
    users = [store.ensure_user(name) for name in ("ann", "bob")]
    store.queue(project, users[0], 1)
    for user, said in zip(users, ((0, 1, 0), (0, 0, 0)), strict=True):
        for sample, label in zip(samples, said, strict=False):
            answer = Annotation(
                client_uuid=str(uuid.uuid4()),
                project_id=project,
                sample_id=sample,
                user_id=user,
                label_id=labels[label],
            )
            store.annotate(answer)
    return store, project, samples, labels


def test_what_differs_is_to_be_decided_and_a_later_decision_holds(desk) -> None:
    store, project, samples, labels = desk
    assert store.disputed(project) == [samples[1]]
    reviewer = store.ensure_user("rev")
    for label in (labels[0], labels[1]):
        decision = Adjudication(
            project_id=project, sample_id=samples[1], user_id=reviewer, label_id=label
        )
        store.adjudicate(decision)
    assert (store.disputed(project), store.count_disputed(project)) == ([], 0)
    finals = {one.sample_id: (one.label_id, one.decided) for one in store.final_labels(project)}
    assert finals == {
        samples[0]: (labels[0], False),
        samples[1]: (labels[1], True),
        samples[2]: (labels[0], False),
    }
    exported = {one.sample_id: one.final_label for one in store.labelled_samples(project)}
    assert exported == {samples[0]: "zero", samples[1]: "one", samples[2]: "zero"}


def test_answers_become_counts_and_pairs(desk) -> None:
    store, project, _, labels = desk
    answers = store.answers(project)
    assert label_counts(answers, labels).tolist() == [[2, 0, 0], [1, 1, 0], [2, 0, 0]]
    kappas = pairwise_kappas(answers, labels)
    assert {shared for _, shared in kappas.values()} == {3}


def test_decisions_about_other_samples_or_labels_are_refused(desk) -> None:
    store, project, samples, labels = desk
    user = store.ensure_user("rev")
    for changes in ({"sample_id": 10**6}, {"label_id": 10**6}, {"user_id": 10**6}):
        fields = {"project_id": project, "sample_id": samples[0], "user_id": user}
        decision = Adjudication(**{**fields, "label_id": labels[0], **changes})
        with pytest.raises(StoreError):
            store.adjudicate(decision)
    with pytest.raises(StoreError, match="sample_id"):
        store.set_gold(project, 10**6, labels[0])


def test_decisions_made_together_follow_agreement_and_are_taken_back_together(desk) -> None:
    store, project, samples, labels = desk
    reviewer = store.ensure_user("rev")
    assert store.agreed(project, 1.0) == (2, 1)

    def by(uuid_: str) -> Adjudication:
        return Adjudication(
            project_id=project, sample_id=0, user_id=reviewer, label_id=None, client_uuid=uuid_
        )

    with pytest.raises(StoreError, match="look again"):
        store.decide_together(by("a"), share=1.0, accept=True, expected=3)
    for _ in range(2):  # sent again, it changes nothing
        assert store.decide_together(by("a"), share=1.0, accept=True, expected=2) == 2
    assert store.decide_together(by("b"), share=1.0, accept=False, expected=1) == 1
    finals = {one.sample_id: (one.label_id, one.decided) for one in store.final_labels(project)}
    assert finals == {
        samples[0]: (labels[0], True),
        samples[1]: (None, True),
        samples[2]: (labels[0], True),
    }
    later = Adjudication(
        project_id=project, sample_id=samples[0], user_id=reviewer, label_id=labels[1]
    )
    assert store.adjudicate(later, gold=True)
    assert store.reopen_together(by("c"), "a") == 1, "what was decided anew since holds"
    assert store.list_reviewed(project, "decided") == (2, [samples[0], samples[1]])
    assert store.list_reviewed(project, "agreed") == (1, [samples[2]])
    assert store.list_reviewed(project, "decided", label_id=labels[1]) == (1, [samples[0]])
    second = store.ensure_user("second")
    anew = Adjudication(
        project_id=project, sample_id=samples[1], user_id=second, label_id=labels[2]
    )
    assert store.adjudicate(anew)
    assert store.reviewers(project) == {reviewer: "rev", second: "second"}
    for who, one in ((reviewer, samples[0]), (second, samples[1])):
        assert store.list_reviewed(project, "decided", reviewer_id=who) == (1, [one])
    back = Adjudication(
        project_id=project,
        sample_id=samples[0],
        user_id=reviewer,
        label_id=None,
        reopens=True,
    )
    assert store.adjudicate(back, seen=later.client_uuid)
    assert store.gold(project) == {}, "a sample that is open again is no gold"
    finals = {one.sample_id: (one.label_id, one.decided) for one in store.final_labels(project)}
    assert finals[samples[0]] == (labels[0], False), "its answers count again"
