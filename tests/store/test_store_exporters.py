"""Labels leave with the provenance of the samples that they are about."""

from __future__ import annotations

import csv
import io
import zipfile

import pytest
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.foundation.errors import WrongUse
from fedlens.store import EXPORTERS, Annotation, SampleFilter, Store, decode_png, pixel_digest


@pytest.fixture
def project(store: Store) -> int:
    """Two annotators: one corrects an answer and skips a sample, the other takes one back."""
    paid_run(store)
    store.add_batch(a_batch(4), some_samples(4))
    number = store.create_project(a_project())
    first, second, *_ = (sample.sample_id for sample in store.samples(SampleFilter()))
    zero, one, _ = (label.label_id for label in store.labels(number))
    said = (("ann", first, zero), ("ann", first, one), ("ann", second, None), ("bob", first, zero))
    for place, (name, sample, label) in enumerate((*said, ("bob", second, one))):
        store.annotate(
            Annotation(
                client_uuid=f"uuid-{place}",
                project_id=number,
                sample_id=sample,
                user_id=store.ensure_user(name),
                label_id=label,
                skip_reason="unclear" if label is None else None,
            )
        )
    store.undo(number, store.ensure_user("bob"))
    return number


def rows(table: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.decode())))


def test_the_table_holds_the_answers_in_force(store: Store, project: int) -> None:
    found = rows(EXPORTERS["csv"].export(store.labelled_samples(project)))
    assert [(row["annotator"], row["label"], row["kind"]) for row in found] == [
        ("ann", "one", "class"),
        ("ann", "", ""),
        ("bob", "zero", "class"),
    ]
    assert {row["provenance"] for row in found} == {a_batch(4).provenance}
    assert {row["run_id"] for row in found} == {"run-1"}
    assert "png" not in found[0]


def test_the_archive_holds_each_image_once(store: Store, project: int) -> None:
    samples = store.labelled_samples(project)
    with zipfile.ZipFile(io.BytesIO(EXPORTERS["zip"].export(samples))) as archive:
        table = rows(archive.read("labels.csv"))
        assert sorted(archive.namelist()) == sorted(
            {"labels.csv", "PRIVACY.md", *(f"images/{row['sample_id']}.png" for row in table)}
        )
        for row in table:
            png = archive.read(f"images/{row['sample_id']}.png")
            assert pixel_digest(decode_png(png)) == row["sha256"]


def test_a_project_without_answers_is_a_table_of_no_lines(store: Store) -> None:
    paid_run(store)
    number = store.create_project(a_project())
    assert rows(EXPORTERS["csv"].export(store.labelled_samples(number))) == []


def test_an_unknown_exporter_is_refused_with_those_there_are() -> None:
    with pytest.raises(WrongUse, match=r"no exporter 'cvs'.*csv, zip.*did you mean 'csv'"):
        EXPORTERS["cvs"]
