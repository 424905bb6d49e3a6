"""Labels come back onto samples that are here: all of a file, or nothing of it."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import uuid
import zipfile

import pytest
from store_builders import a_batch, a_project, paid_run, some_samples

from fedlens.store import (
    EXPORTERS,
    Annotation,
    SampleFilter,
    Store,
    StoreError,
    decode_png,
    pixel_digest,
    read_labels_file,
)
from fedlens.store.imports import IMPORTED

NASTY = "=1+1<script>"


@pytest.fixture
def project(store: Store) -> int:
    paid_run(store)
    store.add_batch(a_batch(4), some_samples(4))
    number = store.create_project(a_project(several=True))
    zero, one, unknown = (label.label_id for label in store.labels(number))
    samples = [s.sample_id for s in store.samples(SampleFilter())]
    for name, sample, label, more in (
        ("ann", samples[0], zero, [one]),
        (NASTY, samples[0], zero, None),
        ("ann", samples[1], unknown, None),
        ("ann", samples[2], None, None),
    ):
        store.annotate(
            Annotation(
                client_uuid=str(uuid.uuid4()),
                project_id=number,
                sample_id=sample,
                user_id=store.ensure_user(name),
                label_id=label,
                skip_reason="unclear" if label is None else None,
                note="half of it, cut" if more else None,
                more_labels=more,
                lead_ms=700,
            )
        )
    return number


def exported(store: Store, project: int, name: str) -> bytes:
    return EXPORTERS[name].export(store.labelled_samples(project))


@pytest.mark.parametrize("name", ["csv", "label-studio"])
def test_what_is_exported_can_be_imported_again(store: Store, project: int, name: str) -> None:
    content = exported(store, project, name)
    labels = read_labels_file(content)
    assert store.import_labels(project, labels) == 4
    assert store.import_labels(project, labels) == 0
    names = store.user_names()
    said: dict[bool, list] = {True: [], False: []}
    for one in store.annotations(project):
        who = names[one.user_id]
        answer = (one.sample_id, one.label_id, one.more_labels, one.note)
        said[who.endswith(" (imported)")].append((who.removesuffix(" (imported)"), *answer))
    assert said[True] == said[False]


@pytest.mark.parametrize("name", ["csv", "label-studio"])
@pytest.mark.law("labels: imports and exports are whole and safe")
def test_unknown_samples_and_labels_import_nothing_at_all(
    store: Store, project: int, name: str
) -> None:
    content = exported(store, project, name).decode()
    before = store.annotation_history(project)
    digest = store.samples(SampleFilter())[1].sha256
    for broken, words in (
        (content.replace(digest, "0" * 64), "1 samples of the file"),
        (content.replace("unknown class", "a horse"), "1 labels of the file.*'a horse'"),
    ):
        with pytest.raises(StoreError, match=f"{words}.*nothing was imported"):
            store.import_labels(project, read_labels_file(broken.encode()))
    assert store.annotation_history(project) == before
    assert not any(name.endswith("(imported)") for name in store.user_names().values())


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"",
        b"sample,label\n1,2\n",
        b"sha256,label,annotator\nshort,zero,ann\n",
        b"[1]",
        b"[{",
        b'[{"data": {}}]',
        json.dumps([{"data": {"sample_sha256": "0" * 64}, "annotations": {}}]).encode(),
        json.dumps([{"data": {"sample_sha256": "0" * 64}, "annotations": [{}]}]).encode(),
        json.dumps(
            [{"data": {"sample_sha256": "0" * 64}, "annotations": [{"result": [7]}]}]
        ).encode(),
    ],
)
def test_what_is_no_export_is_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(StoreError):
        read_labels_file(content)


def privacy(text: str) -> bool:
    return "(7.5, 1e-5)-DP for each user" in text and "0.75" in text


@pytest.mark.law("labels: imports and exports are whole and safe")
def test_every_export_holds_both_privacy_statements(store: Store, project: int) -> None:
    files = {name: exported(store, project, name) for name in EXPORTERS}
    assert privacy(files["csv"].decode())
    assert privacy(files["label-studio"].decode())
    with zipfile.ZipFile(io.BytesIO(files["zip"])) as archive:
        assert privacy(archive.read("PRIVACY.md").decode())
    with zipfile.ZipFile(io.BytesIO(files["huggingface"])) as archive:
        assert privacy(archive.read("README.md").decode())
    with tarfile.open(fileobj=io.BytesIO(files["webdataset"])) as archive:
        described = [m for m in archive.getmembers() if m.name.endswith(".json")]
        assert len(described) == 3
        assert all(privacy(archive.extractfile(m).read().decode()) for m in described)  # type: ignore[union-attr]


def test_the_parquet_file_holds_the_pictures_and_says_so(store: Store, project: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with zipfile.ZipFile(io.BytesIO(exported(store, project, "huggingface"))) as archive:
        card = archive.read("README.md").decode()
        table = parquet.read_table(io.BytesIO(archive.read("data/train-00000-of-00001.parquet")))
    rows = table.to_pylist()
    assert [row["label"] for row in rows] == ["zero", "unknown class", None]
    for row in rows:
        assert pixel_digest(decode_png(row["image"]["bytes"])) == row["sha256"]
    assert b'"_type": "Image"' in table.schema.metadata[b"huggingface"]
    assert card.startswith("---\n")
    assert "path: data/train-*" in card


def test_a_webdataset_s_members_belong_together(store: Store, project: int) -> None:
    with tarfile.open(fileobj=io.BytesIO(exported(store, project, "webdataset"))) as archive:
        names = archive.getnames()
        text = archive.extractfile(names[2]).read()  # type: ignore[union-attr]
    stems = [name.partition(".")[0] for name in names]
    assert [name.partition(".")[2] for name in names[:3]] == ["json", "png", "txt"]
    assert stems[::3] == stems[1::3] == stems[2::3]
    assert text == b"zero"


def test_a_spreadsheet_runs_nothing_of_the_table(store: Store, project: int) -> None:
    assert f"'{NASTY}" in exported(store, project, "csv").decode()


def test_label_studio_s_json_is_of_its_form(store: Store, project: int) -> None:
    tasks = json.loads(exported(store, project, "label-studio"))
    assert [len(task["annotations"]) for task in tasks] == [2, 1, 1]
    first = tasks[0]["annotations"][0]
    assert first["result"][0] == {
        "id": "label-1",
        "from_name": "label",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": ["zero", "one"]},
    }
    assert (first["was_cancelled"], first["lead_time"]) == (False, 0.7)
    assert tasks[2]["annotations"][0]["was_cancelled"]


def test_label_studio_s_own_converter_reads_it(store: Store, project: int, tmp_path) -> None:
    converter = pytest.importorskip("label_studio_sdk.converter")
    place = tmp_path / "labels.json"
    place.write_bytes(exported(store, project, "label-studio"))
    choices = "".join(f'<Choice value="{one.name}"/>' for one in store.labels(project))
    config = (
        '<View><Image name="image" value="$image"/><Choices name="label" toName="image" '
        f'choice="multiple">{choices}</Choices><TextArea name="note" toName="image"/></View>'
    )
    reader = converter.Converter(config, str(tmp_path))
    reader.convert(str(place), str(tmp_path / "out"), "CSV", is_dir=False)
    lines = (tmp_path / "out" / "result.csv").read_text().splitlines()
    assert len(lines) == 4  # a head, and the three answers that are no skips
    assert "unknown class" in lines[-1]


HEAD = "sha256,label,annotator,note,more_labels\n"
DIGEST = "0" * 64


def label_studio(**said: object) -> bytes:
    chosen = {"type": "choices", "value": {"choices": ["zero"]}}
    annotation = {"result": [chosen], "completed_by": "ann"} | said
    task = {"data": {"sample_sha256": DIGEST}, "annotations": [annotation]}
    return json.dumps([task]).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        f"{HEAD}{DIGEST},{'x' * 200_000},ann\n".encode(),
        f"{HEAD}{DIGEST},zero,{'x' * 300}\n".encode(),
        f'{HEAD}{DIGEST},zero,"ann\n2026-01-01  admin: decided"\n'.encode(),
        label_studio(completed_by="\x1b[2Jann"),
        label_studio(completed_by="\ud800"),
        label_studio(result=[{"type": "choices", "value": {"choices": ["\ud800"]}}]),
    ],
    ids=["deep", "huge cell", "long name", "two lines", "escape", "half a letter", "half a label"],
)
def test_a_hostile_file_is_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(StoreError) as refused:
        read_labels_file(content)
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


def test_a_line_that_ends_early_is_a_skip_by_somebody(store: Store, project: int) -> None:
    digest = store.samples(SampleFilter())[0].sha256
    (one,) = read_labels_file(f"{HEAD}{digest}\n".encode())
    assert (one.label, one.annotator, one.more_labels) == (None, "somebody", ())
    with pytest.raises(StoreError, match="names no sample"):
        read_labels_file(f"{HEAD},zero\n".encode())


RISKY = (
    "=1+1",
    "\n=1+1",
    "\r=1+1",
    "zero\r=1+1,2",
    'zero"\r\n=1+1',
    " =1+1",
    "＝1+1",
    "'=1+1",
    "''",
    "plain",
)


@pytest.mark.law("labels: imports and exports are whole and safe")
def test_no_cell_begins_as_a_formula_and_each_comes_back(store: Store, project: int) -> None:
    """As spreadsheets read it, to which a carriage return ends a line as well."""
    sample = store.samples(SampleFilter())[3].sample_id
    label = store.labels(project)[0].label_id
    for note in RISKY:
        answer = Annotation(
            client_uuid=str(uuid.uuid4()),
            project_id=project,
            sample_id=sample,
            user_id=store.ensure_user("cy"),
            label_id=label,
            note=note,
        )
        store.annotate(answer)
        content = exported(store, project, "csv")
        notes = [one.note for one in read_labels_file(content) if one.annotator == "cy"]
        assert notes == [note]
        for row in csv.reader(io.StringIO(content.decode(), newline="")):
            assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "＝")) for cell in row)
        assert len(list(csv.reader(io.StringIO(content.decode(), newline="")))) == 6


def test_a_desk_cannot_take_the_id_of_an_import(store: Store, project: int) -> None:
    """Ids of an import follow from its file, which an annotator may guess."""
    store.import_labels(project, read_labels_file(exported(store, project, "csv")))
    names = store.user_names()
    ids = {
        one.client_uuid
        for one in store.annotations(project)
        if names[one.user_id].endswith("(imported)")
    }
    assert len(ids) == 4
    assert all(one.startswith(IMPORTED) for one in ids)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "x" * 201, "\u202eevil"])
def test_a_project_s_name_is_one_short_line(store: Store, name: str) -> None:
    paid_run(store)
    with pytest.raises(StoreError, match="one line"):
        store.create_project(a_project(name=name))
