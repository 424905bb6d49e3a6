"""What students learn of a project: reviewers' decisions, and which class a label is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import update

from fedlens.api.label_curves import label_curve
from fedlens.server.config.tree import Config
from fedlens.simulations.run_artifacts import labelled_samples
from fedlens.store import (
    Adjudication,
    Annotation,
    BatchRecord,
    LabelRecord,
    LedgerRow,
    ProjectRecord,
    RunRecord,
    SampleFilter,
    SampleRecord,
    Store,
    StoreError,
    open_store,
)
from fedlens.store.schema import RunTable


@pytest.fixture
def store(tmp_path: Path):
    """A run with four samples, each of one grey of its own."""
    with open_store(tmp_path / "store.db", create=True) as made:
        made.create_run(
            RunRecord(
                run_id="run", name="run", config={}, config_sha256="0" * 64, data_name="embedded",
                unit="user", users=9, nodes=1, rounds_planned=1, private=True, guarantee="All.",
            )
        )  # fmt: skip
        row = LedgerRow(run_id="run", index=0, round=1, event={}, purpose="x", entry_hash="1" * 64)
        made.record_progress([row])
        batch = BatchRecord(
            run_id="run", round=1, ledger_index=0, purpose="curated", checkpoint_sha256="2" * 64,
            seed=1, count=4, dp_epsilon=1.0, delta_dp=1e-5, bdp_as_published=1.0,
            bdp_corrected=1.0, bdp_sound=1.0, delta_bdp=1e-5, private=True, provenance="SYNTHETIC",
        )  # fmt: skip
        greys = [np.full((1, 16, 16), 60 * place, np.uint8) for place in range(4)]
        made.add_batch(
            batch,
            [
                SampleRecord.from_pixels(position=place, requested_class=0, pixels=grey)
                for place, grey in enumerate(greys)
            ],
        )
        yield made


def project_of(store: Store, *names: str) -> int:
    labels = [LabelRecord(key=str(place), name=name) for place, name in enumerate(names)]
    labels.append(LabelRecord(key="x", name="artefact", kind="artefact"))
    return store.create_project(
        ProjectRecord(name="labels", run_id="run", labels=tuple(labels), order="stored")
    )


def say(store: Store, project: int, user: str, *names: str) -> None:
    ids = {label.name: label.label_id for label in store.labels(project)}
    for sample, name in zip(
        store.queue(project, store.ensure_user(user), len(names)), names, strict=True
    ):
        store.annotate(
            Annotation(
                client_uuid=f"{user}-{sample.sample_id}",
                project_id=project,
                sample_id=sample.sample_id,
                user_id=store.ensure_user(user),
                label_id=ids[name],
            )
        )


def taught(store: Store, project: int) -> list[tuple[int, int]]:
    """Grey and class of each image that a student learns from."""
    images, classes = labelled_samples(store, project)
    greys = ((images[:, 0, 0, 0] + 1) * 127.5).round().int().tolist() if len(classes) else []
    return sorted(zip(greys, classes.tolist(), strict=True))


def test_a_reviewer_s_decision_is_what_a_student_learns(store: Store) -> None:
    project = project_of(store, "class 0", "class 1")
    say(store, project, "ann", "class 0", "class 0", "class 0", "class 0")
    say(store, project, "bob", "class 1", "class 1", "class 1", "class 1")
    ids = {label.name: label.label_id for label in store.labels(project)}
    samples = [sample.sample_id for sample in store.samples(SampleFilter())]
    for sample, decision in zip(samples, (ids["class 1"], ids["artefact"], None), strict=False):
        store.adjudicate(
            Adjudication(
                project_id=project,
                sample_id=sample,
                user_id=store.ensure_user("rev"),
                label_id=decision,
            )
        )
    # decided once, an artefact, left out; of the last one both opinions
    assert taught(store, project) == [(0, 1), (180, 0), (180, 1)]


def test_a_label_with_the_name_of_a_class_is_that_class(store: Store) -> None:
    with store._writing() as session:
        session.execute(update(RunTable).values(class_names=["cat", "dog", "owl"]))
    project = project_of(store, "owl", "class 1", "cat")
    say(store, project, "ann", "owl", "cat", "class 1")
    assert taught(store, project) == [(0, 2), (60, 0), (120, 1)]


def test_a_name_of_no_class_is_refused_where_positions_are_none(store: Store) -> None:
    with store._writing() as session:
        session.execute(update(RunTable).values(class_names=["cat", "dog", "owl"]))
    moved = project_of(store, "owl", "cat", "dgo")
    say(store, moved, "ann", "owl")
    with pytest.raises(StoreError, match=r"which class is the label 'dgo'.*'owl' is one by its"):
        taught(store, moved)


def test_a_name_of_no_class_stands_for_its_position_beside_names_that_do(store: Store) -> None:
    with store._writing() as session:
        session.execute(update(RunTable).values(class_names=["cat", "dog", "owl"]))
    project = project_of(store, "cat", "dgo", "owl")
    say(store, project, "ann", "dgo", "owl")
    assert taught(store, project) == [(0, 1), (60, 2)]


def test_a_label_named_after_a_class_is_that_class(store: Store) -> None:
    project = project_of(store, "class 3", "class 8")
    say(store, project, "ann", "class 3", "class 8")
    assert taught(store, project) == [(0, 3), (60, 8)]


def test_other_names_stand_for_their_places(store: Store) -> None:
    project = project_of(store, "shirt", "class 8")
    say(store, project, "ann", "shirt", "class 8")
    assert taught(store, project) == [(0, 0), (60, 1)]


def test_too_few_labels_of_other_names_teach_no_student(store: Store) -> None:
    project = project_of(store, "shirt", "shoe")
    say(store, project, "ann", "shirt", "shoe")
    config = Config()
    small = config.model_copy(update={"data": config.data.model_copy(update={"users": 20})})
    with pytest.raises(StoreError, match="2 class labels and the data 10 classes"):
        label_curve(small, None, store, "labels", epochs=1)  # type: ignore[arg-type]


def test_a_sample_on_which_people_agree_teaches_once(store: Store) -> None:
    project = project_of(store, "class 0", "class 1")
    say(store, project, "ann", "class 0", "class 1")
    say(store, project, "bob", "class 0", "class 0")
    assert taught(store, project) == [(0, 0), (60, 0), (60, 1)]
