"""``fedlens accounts`` and ``fedlens labels``: what they do, and refuse in one sentence."""

from __future__ import annotations

import io
import json
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedlens.api import runs
from fedlens.cli import main
from fedlens.store import (
    Annotation,
    BatchRecord,
    LabelRecord,
    LedgerRow,
    ProjectRecord,
    RunRecord,
    SampleFilter,
    SampleRecord,
    open_store,
)
from fedlens.store.imports import ImportMethods

np = pytest.importorskip("numpy")


def last_line(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    return path


def accounts(place: Path, *arguments: str) -> int:
    action, *more = arguments
    return main(["accounts", action, "--store", str(place), *more])


def with_password(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))


def test_accounts_are_kept_from_the_command_line(place: Path, monkeypatch, capsys) -> None:
    with_password(monkeypatch, "long enough")
    assert accounts(place, "add", "ann", "--role", "reviewer", "--password-stdin") == 0
    assert accounts(place, "role", "ann", "engineer") == 0
    assert accounts(place, "disable", "ann", "--json") == 0
    assert last_line(capsys) == {
        "accounts": [{"name": "ann", "role": "engineer", "disabled": True}]
    }
    with open_store(place) as store:
        assert store.check_password("ann", "long enough") is None
    with_password(monkeypatch, "another one")
    assert accounts(place, "password", "ann", "--password-stdin") == 0
    assert accounts(place, "enable", "ann") == 0
    with open_store(place) as store:
        assert store.check_password("ann", "another one") is not None
    assert accounts(place, "log", "--json") == 0
    said = [entry["action"] for entry in last_line(capsys)["log"]]
    assert said == [
        "account enabled",
        "password changed",
        "account disabled",
        "role changed",
        "account added",
    ]


@pytest.mark.parametrize(
    ("arguments", "password", "words"),
    [
        (("add", "ann", "--password-stdin"), "short", "password of 5 characters"),
        (("add", "<b>", "--password-stdin"), "long enough", "name = '<b>'"),
        (("add", "ann"), "", "--password-stdin"),
        (("role", "no-such-name", "viewer"), "", "no such account"),
    ],
)
def test_what_cannot_be_is_refused(
    place: Path, monkeypatch, capsys, arguments, password, words
) -> None:
    with_password(monkeypatch, password)
    assert accounts(place, *arguments) in (1, 2)
    assert words in capsys.readouterr().err


@pytest.fixture
def run(tmp_path: Path, place: Path, monkeypatch) -> Path:
    """A run directory in name, with a store that has a project and one answer."""
    made = SimpleNamespace(store=str(place), path=tmp_path)
    monkeypatch.setattr(runs, "open_run", lambda path, store="": made)
    spent = {"dp_epsilon": 1.5, "delta_dp": 1e-5, "delta_bdp": 1e-10}
    spent |= dict.fromkeys(("bdp_as_published", "bdp_corrected", "bdp_sound"), 0.5)
    fields = {"config": {}, "config_sha256": "c", "data_name": "d", "unit": "user", "users": 9}
    fields |= {"nodes": 1, "rounds_planned": 1, "private": True, "guarantee": "(1.5, 1e-5)-DP"}
    with open_store(place) as store:
        store.create_run(RunRecord(run_id="r", name="r", **fields))
        row = LedgerRow(run_id="r", index=0, round=1, event={}, purpose="p", entry_hash="h")
        store.record_progress(ledger=[row])
        random = np.random.default_rng(0)
        samples = [
            SampleRecord.from_pixels(
                position=i,
                requested_class=i,
                pixels=random.integers(0, 256, (1, 8, 8), dtype=np.uint8),
            )
            for i in range(3)
        ]
        batch = {"run_id": "r", "round": 1, "ledger_index": 0, "purpose": "curated"}
        more = {"checkpoint_sha256": "c", "seed": 1, "count": 3, "private": True}
        store.add_batch(BatchRecord(**batch, **more, provenance="SYNTHETIC", **spent), samples)
        labels = (LabelRecord(key="0", name="zero"), LabelRecord(key="1", name="one"))
        number = store.create_project(ProjectRecord(name="digits", run_id="r", labels=labels))
        store.annotate(
            Annotation(
                client_uuid=str(uuid.uuid4()),
                project_id=number,
                sample_id=store.samples(SampleFilter())[0].sample_id,
                user_id=store.ensure_user("ann"),
                label_id=store.labels(number)[1].label_id,
            )
        )
    return tmp_path


@pytest.mark.parametrize("name", ["csv", "zip", "label-studio", "huggingface", "webdataset"])
def test_labels_are_exported_whole(run: Path, capsys, name: str) -> None:
    out = run / "labels.file"
    command = ["labels", "export", str(run), "--project", "digits", "--format", name]
    assert main([*command, "--out", str(out), "--json"]) == 0
    assert last_line(capsys) == {"answers": 1, "file": str(out)}
    assert out.stat().st_size > 100


def test_the_labelling_interface_is_written_beside_an_export(run: Path, capsys) -> None:
    out = run / "digits.xml"
    command = ["labels", "interface", str(run), "--project", "digits", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    assert last_line(capsys) == {"labels": 2, "file": str(out)}
    assert '<Choice value="zero" hotkey="0" />' in out.read_text()
    assert main([*command[:-1], "/nowhere/x.xml"]) == 2
    assert "no folder" in capsys.readouterr().err


def test_an_export_that_is_cut_off_leaves_what_was_there(run: Path, monkeypatch) -> None:
    out = run / "labels.csv"
    out.write_text("earlier")
    monkeypatch.setattr("os.fsync", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    command = ["labels", "export", str(run), "--project", "digits", "--out", str(out)]
    assert main(command) == 1
    assert out.read_text() == "earlier"


def test_labels_are_imported_once(run: Path, capsys) -> None:
    out = run / "labels.csv"
    main(["labels", "export", str(run), "--project", "digits", "--out", str(out)])
    for added in (1, 0):
        assert main(["labels", "import", str(run), str(out), "--project", "digits", "--json"]) == 0
        assert last_line(capsys) == {"answers": 1, "added": added, "empty": 0}
    out.write_text(out.read_text().replace('"one"', '"two"'))
    assert main(["labels", "import", str(run), str(out), "--project", "digits"]) == 1
    assert "nothing was imported" in capsys.readouterr().err


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_an_import_that_is_too_large_is_not_read(run: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(ImportMethods, "import_labels", lambda *_: pytest.fail("it was read"))
    out = run / "labels.json"
    with out.open("wb") as file:
        file.truncate(2**28 + 1)
    assert main(["labels", "import", str(run), str(out), "--project", "digits"]) == 2
    assert "an import takes at most 268435456" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--project", "letters"], "there are: 'digits'"),
        (["--project", "digits", "--format", "xml"], "no exporter 'xml'"),
        (["--project", "digits", "--out", "/nowhere/x.csv"], "no folder"),
    ],
)
def test_exports_that_cannot_be_are_refused(run: Path, capsys, more, words) -> None:
    assert main(["labels", "export", str(run), *more]) == 2
    assert words in capsys.readouterr().err


def test_a_curve_needs_a_project(run: Path, capsys) -> None:
    assert main(["student", str(run), "--curve"]) == 2
    assert "--project" in capsys.readouterr().err
