"""Imported answers: second thoughts, samples with the same pixels, names with separators."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import (
    EXPORTERS,
    Annotation,
    LabelRecord,
    SampleFilter,
    Store,
    read_labels_file,
)
from fedlens.store.imports import ImportedLabel


def in_force(store: Store, project: int) -> list[str]:
    names = {label.label_id: label.name for label in store.labels(project)}
    said = sorted(store.annotations(project), key=lambda one: one.sample_id)
    return [names[one.label_id or 0] for one in said]


def test_somebody_may_come_back_to_a_first_thought(store: Store) -> None:
    paid_run(store)
    store.add_batch(a_batch(1), some_samples(1))
    project = store.create_project(a_project())
    zero, one, _ = (label.name for label in store.labels(project))
    [sample] = store.samples(SampleFilter())
    for label in (zero, one, zero):
        given = [ImportedLabel(sha256=sample.sha256, label=label, annotator="ann")]
        assert store.import_labels(project, given) == 1
        assert store.import_labels(project, given) == 0
        assert in_force(store, project) == [label]
    noted = [replace(given[0], note="a seven, turned")]
    assert store.import_labels(project, noted) == 1
    assert [said.note for said in store.annotations(project)] == ["a seven, turned"]
    # of one file the last line counts, however often it is read
    both = [replace(given[0], label=zero), replace(given[0], label=one)]
    assert [store.import_labels(project, both) for _ in range(3)] == [1, 0, 0]
    assert in_force(store, project) == [one]


@pytest.mark.parametrize("name", ["csv", "label-studio"])
def test_of_samples_with_the_same_pixels_each_gets_its_own_label(store: Store, name: str) -> None:
    paid_run(store)
    [picture] = some_samples(1)
    store.add_batch(a_batch(2), [picture, replace(picture, position=1)])
    first, second = (
        store.create_project(replace(a_project(), name=name)) for name in ("there", "back")
    )
    zero, one, _ = (label.label_id for label in store.labels(first))
    for sample, label in zip(store.samples(SampleFilter()), (zero, one), strict=True):
        store.annotate(
            Annotation(
                client_uuid=f"{sample.sample_id}",
                project_id=first,
                sample_id=sample.sample_id,
                user_id=store.ensure_user("ann"),
                label_id=label,
            )
        )
    content = EXPORTERS[name].export(store.labelled_samples(first))
    assert store.import_labels(second, read_labels_file(content)) == 2
    assert in_force(store, second) == in_force(store, first)
    # a file that names no number speaks of all of them
    bare = [replace(said, sample_id=None) for said in read_labels_file(content)[:1]]
    assert store.import_labels(second, bare) == 1


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1.5", "x", "٣"])
def test_a_line_with_a_strange_number_speaks_of_its_pixels(number: str) -> None:
    table = f"sha256,label,annotator,sample_id\n{'0' * 64},zero,ann,{number}\n"
    assert [said.sample_id for said in read_labels_file(table.encode())] == [None]


def test_a_label_s_name_may_hold_what_stands_between_names(store: Store) -> None:
    paid_run(store)
    store.add_batch(a_batch(1), some_samples(1))
    names = ("dog", "cat; small", r"a\;b")
    labels = tuple(LabelRecord(key=str(i), name=name) for i, name in enumerate(names))
    project = store.create_project(replace(a_project(several=True), labels=labels))
    ids = [label.label_id for label in store.labels(project)]
    [sample] = store.samples(SampleFilter())
    store.annotate(
        Annotation(
            client_uuid="1",
            project_id=project,
            sample_id=sample.sample_id,
            user_id=store.ensure_user("ann"),
            label_id=ids[0],
            more_labels=ids[1:],
        )
    )
    content = EXPORTERS["csv"].export(store.labelled_samples(project))
    assert store.import_labels(project, read_labels_file(content)) == 1
    assert [said.more_labels for said in store.annotations(project)] == [ids[1:]] * 2
