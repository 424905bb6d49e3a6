"""Label Studio's own converter and SDK read what we export, and every label arrives."""

from __future__ import annotations

import csv
import json
import uuid
from pathlib import Path

import pytest
from label_studio_sdk.converter import Converter
from label_studio_sdk.label_interface import LabelInterface
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import (
    EXPORTERS,
    Annotation,
    LabelRecord,
    SampleFilter,
    Store,
    labelling_interface,
    open_store,
    read_labels_file,
    upgrade,
)

NASTY = 'a "horse" & <b>;'
LABELS = (
    LabelRecord(key="0", name="zero"),
    LabelRecord(key="1", name="one"),
    LabelRecord(key="n", name=NASTY),
    LabelRecord(key="q", name="unknown class", kind="unknown"),
)
SAID: tuple[tuple[int, str, str | None, tuple[str, ...], str | None], ...] = (
    (0, "ann", "zero", ("one",), "half of it, cut"),
    (0, "bob", NASTY, (), None),
    (1, "ann", "unknown class", (), None),
    (2, "ann", None, (), None),
    (3, "bob", "one", (), 'two\nlines, and "quotes"'),
)
"""Sample, annotator, label, further ones, note; without a label it was skipped."""
EMPTY = {
    "id": 99,
    "completed_by": {"email": "dora"},
    "result": [],
    "created_at": "2026-01-01T00:00:00",
    "lead_time": 1.0,
}
"""What Label Studio has of somebody who sent an answer without a choice."""


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, str, dict[str, int]]:
    """The file, its interface, and the samples' places by digest."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(url)
    with open_store(url) as store:
        project = labelled(store)
        several = next(one for one in store.projects() if one.project_id == project).several
        interface = labelling_interface(store.labels(project), several=several)
        file = tmp_path / "labels.json"
        file.write_bytes(EXPORTERS["label-studio"].export(store.labelled_samples(project)))
        places = {one.sha256: one.position for one in store.samples(SampleFilter())}
    return file, interface, places


def labelled(store: Store) -> int:
    paid_run(store)
    store.add_batch(a_batch(5), some_samples(5))
    project = store.create_project(a_project(labels=LABELS, several=True))
    ids = {label.name: label.label_id for label in store.labels(project)}
    samples = [one.sample_id for one in store.samples(SampleFilter())]
    for place, name, label, more, note in SAID:
        answer = Annotation(
            client_uuid=str(uuid.uuid4()),
            project_id=project,
            sample_id=samples[place],
            user_id=store.ensure_user(name),
            label_id=None if label is None else ids[label],
            skip_reason="unclear" if label is None else None,
            more_labels=[ids[one] for one in more] or None,
            note=note,
            lead_ms=700,
        )
        store.annotate(answer)
    return project


def arrived(rows: list[dict[str, object]], places: dict[str, int]) -> set[tuple[object, ...]]:
    """What rows of the converter say, in the words of ``SAID``."""
    found = set()
    for row in rows:
        label, note = row["label"], row.get("note") or None
        if isinstance(label, str) and label.startswith("{"):  # several, in a cell of a table
            label = json.loads(label)
        names = label["choices"] if isinstance(label, dict) else [label]
        place = places[str(row["sample_sha256"])]
        found.add((place, row["annotator"], names[0], tuple(names[1:]), note))
    return found


def test_every_label_arrives_in_each_format_for_choices(
    exported: tuple[Path, str, dict[str, int]], tmp_path: Path
) -> None:
    file, interface, places = exported
    converter = Converter(interface, str(tmp_path), download_resources=False)
    assert {"JSON", "JSON_MIN", "CSV", "TSV"} <= set(converter.supported_formats)
    said = {one for one in SAID if one[2] is not None}
    for name, ending in (("JSON_MIN", "json"), ("CSV", "csv"), ("TSV", "csv")):
        converter.convert(str(file), str(tmp_path / name), name, is_dir=False)
        written = (tmp_path / name / f"result.{ending}").read_text()
        if name == "JSON_MIN":
            rows = json.loads(written)
        else:
            between = "," if name == "CSV" else "\t"
            rows = list(csv.DictReader(written.splitlines(keepends=True), delimiter=between))
        assert arrived(rows, places) == said
        assert all("(7.5, 1e-5)-DP for each user" in str(row["guarantee"]) for row in rows)
    converter.convert(str(file), str(tmp_path / "JSON"), "JSON", is_dir=False)
    assert json.loads((tmp_path / "JSON" / "result.json").read_text()) == json.loads(
        file.read_text()
    )


@pytest.mark.parametrize(("name", "ending"), [("JSON_MIN", "json"), ("CSV", "csv"), ("TSV", "csv")])
def test_what_label_studio_exports_comes_back(
    exported: tuple[Path, str, dict[str, int]], tmp_path: Path, name: str, ending: str
) -> None:
    file, interface, places = exported
    tasks = json.loads(file.read_text())
    tasks[1]["annotations"].append(EMPTY)
    file.write_text(json.dumps(tasks))
    converter = Converter(interface, str(tmp_path), download_resources=False)
    converter.convert(str(file), str(tmp_path / name), name, is_dir=False)
    labels = read_labels_file((tmp_path / name / f"result.{ending}").read_bytes())
    found = {
        (places[one.sha256], one.annotator, one.label, one.more_labels, one.note) for one in labels
    }
    assert found == {one for one in SAID if one[2] is not None}


def test_one_empty_annotation_loses_nothing(exported: tuple[Path, str, dict[str, int]]) -> None:
    file, _, _ = exported
    whole = read_labels_file(file.read_bytes())
    tasks = json.loads(file.read_text())
    tasks[1]["annotations"].append(EMPTY)
    again = read_labels_file(json.dumps(tasks).encode())
    assert list(again) == list(whole) and (whole.empty, again.empty) == (0, 1)


def test_the_sdk_takes_the_interface_and_every_task_and_annotation(
    exported: tuple[Path, str, dict[str, int]],
) -> None:
    file, config, _ = exported
    interface = LabelInterface(config)
    interface.validate()
    label = interface.get_control("label")
    assert sorted(label.labels) == sorted(one.name for one in LABELS)
    assert (label.to_name, label.attr["choice"]) == (["image"], "multiple")
    tasks = json.loads(file.read_text())
    assert len(tasks) == 4
    for task in tasks:
        # With annotations the SDK's own check of a task fails: it calls the next one without any.
        assert interface.validate_task({"data": task["data"]})
        for annotation in task["annotations"]:
            assert interface.validate_annotation(annotation)


def test_the_sdk_would_refuse_another_label_than_the_projects(
    exported: tuple[Path, str, dict[str, int]],
) -> None:
    """So that the test above can fail."""
    file, config, _ = exported
    annotation = json.loads(file.read_text())[0]["annotations"][0]
    annotation["result"][0]["value"]["choices"] = ["a giraffe"]
    assert not LabelInterface(config).validate_annotation(annotation)
