"""Figures of privacy in files that leave the store are never below what was spent."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from io import BytesIO

import pytest
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import EXPORTERS, Annotation, SampleFilter, Store
from fedlens.store.exporters.samples import statements
from fedlens.store.sample_archive import archive

SPENT, LITTLE = 1.23449, 1.2344e-05 * (1 + 1e-7)


def epsilons(words: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"(?:ε =|epsilon) ([\d.]+\d)", words)]


def deltas(words: str) -> list[float]:
    return [float(figure) for figure in re.findall(r"(?:δ =|delta) ([\d.e-]+\d)", words)]


def test_an_archive_of_samples_rounds_up(store: Store) -> None:
    paid_run(store)
    number = store.add_batch(a_batch(1), some_samples(1))
    batch = replace(
        store.batch(number),
        dp_epsilon=SPENT, bdp_corrected=SPENT, delta_dp=LITTLE, delta_bdp=LITTLE,
    )  # fmt: skip
    run = replace(store.run("run-1"), class_names=("sock", "boot"))
    with zipfile.ZipFile(BytesIO(archive(batch, store.samples(SampleFilter()), run))) as file:
        words = " ".join(file.read("README.txt").decode().split())
    assert epsilons(words) == [1.235, 1.235]
    assert min(deltas(words)) >= LITTLE
    assert "for anyone" in words
    assert "for people like those enrolled" in words
    assert "Classes: 0 sock, 1 boot." in words


def test_statements_beside_labels_round_up(store: Store) -> None:
    paid_run(store)
    store.add_batch(a_batch(1), some_samples(1))
    project = store.create_project(a_project())
    answer = Annotation(
        client_uuid="1",
        project_id=project,
        sample_id=store.samples(SampleFilter())[0].sample_id,
        user_id=store.ensure_user("ann"),
        label_id=store.labels(project)[0].label_id,
    )
    store.annotate(answer)
    said = [
        replace(
            one,
            dp_epsilon=SPENT, bayesian_epsilon=SPENT, delta_dp=LITTLE, delta_bayesian=LITTLE,
        )
        for one in store.labelled_samples(project)
    ]  # fmt: skip
    words = statements(said)
    assert epsilons(words) == [1.235, 1.235]
    assert min(deltas(words)) >= LITTLE


@pytest.mark.parametrize("name", ["huggingface", "webdataset"])
def test_data_sets_to_publish_name_no_annotator(store: Store, name: str) -> None:
    paid_run(store)
    store.add_batch(a_batch(1), some_samples(1))
    project = store.create_project(a_project())
    for user in ("bob@example.org", "ann@example.org"):
        store.annotate(
            Annotation(
                client_uuid=user,
                project_id=project,
                sample_id=store.samples(SampleFilter())[0].sample_id,
                user_id=store.ensure_user(user),
                label_id=store.labels(project)[0].label_id,
                note=f"says {user}",
            )
        )
    said = store.labelled_samples(project)
    content = EXPORTERS[name].export(said)
    if name == "huggingface":
        with zipfile.ZipFile(BytesIO(content)) as file:
            content = b"".join(file.read(one) for one in file.namelist())
    assert b"example.org" not in content
    assert b"annotator 1" in content
    assert b"annotator 2" in content
    assert [one.annotator for one in said] == ["bob@example.org", "ann@example.org"]
