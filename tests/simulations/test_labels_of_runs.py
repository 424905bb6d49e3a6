"""More samples of a class for the queues of a real run, and a student's curve from its labels."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from fedlens.api.runs import open_run
from fedlens.cli import main
from fedlens.store import Annotation, LabelRecord, ProjectRecord, SampleFilter, open_store

FAST = """
schedule = "critic"
[data]
users = 30
nodes = 2
samples_per_user = 4
[privacy]
delta = 1e-3
[tasks.critic]
kind = "frozen"
rounds = 1
noise_multiplier = 3.0
generator_steps = 2
[generator]
batch = 20
width = 8
[release]
samples = 40
strip = 1
agreement = 0.0
"""
CLASSES = 10


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A small run with a project in which every curated sample has its requested class."""
    folder: Path = tmp_path_factory.mktemp("labelled")
    (folder / "fast.toml").write_text(FAST)
    out = folder / "run"
    arguments = ["simulate", "--config", str(folder / "fast.toml"), "--no-student"]
    assert main([*arguments, "--out", str(out)]) == 0
    run = open_run(out)
    labels = tuple(LabelRecord(key=str(c), name=f"class {c}") for c in range(CLASSES))
    with open_store(run.store) as store:
        record = ProjectRecord(name="digits", run_id=run.id, labels=labels)
        project = store.create_project(record, even_noise=True)
        ids = [label.label_id for label in store.labels(project)]
        user = store.ensure_user("ann")
        for sample in store.queue(project, user, 100):
            store.annotate(
                Annotation(
                    client_uuid=str(uuid.uuid4()),
                    project_id=project,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=ids[sample.requested_class],
                )
            )
    return run


def last_line(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_rare_class_is_refilled_at_no_cost(kept, capsys) -> None:
    entries = kept.directory.ledger.read_bytes()
    command = ["labels", "refill", str(kept.path), "--class", "7", "--count", "12", "--json"]
    assert main(command) == 0
    assert last_line(capsys) == {"added": 12}
    assert kept.directory.ledger.read_bytes() == entries
    with open_store(kept.store) as store:
        project = store.projects()[0].project_id
        waiting = store.queue(project, store.ensure_user("ann"), 99)
        assert [sample.requested_class for sample in waiting] == [7] * 12
        first, *_, last = [b for b in store.batches(kept.id) if b.purpose == "curated"]
        figures = ("dp_epsilon", "bdp_corrected", "ledger_index", "checkpoint_sha256", "private")
        assert all(getattr(first, name) == getattr(last, name) for name in figures)
        pictures = store.samples(SampleFilter(batch_id=last.batch_id))
        assert len({one.sha256 for one in pictures}) > 1


@pytest.mark.parametrize(("requested", "count"), [("10", "5"), ("-1", "5"), ("1", "0")])
def test_a_refill_of_nothing_is_refused(kept, capsys, requested: str, count: str) -> None:
    command = ["labels", "refill", str(kept.path), f"--class={requested}", "--count", count]
    assert main(command) == 2
    assert "give 1 to" in capsys.readouterr().err or int(count)


def test_a_student_s_curve_rises_to_all_labels(kept, capsys) -> None:
    command = ["student", str(kept.path), "--project", "digits", "--curve", "--epochs", "1"]
    assert main([*command, "--json"]) == 0
    found = last_line(capsys)
    assert [point["labels"] for point in found["curve"]] == [4, 10, 20, 40]
    assert found["curve"][-1]["student_accuracy"] == found["student_accuracy"]
