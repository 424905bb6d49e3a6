"""Data that nobody labelled: from a run to labels of people, a label model and a second run."""

from __future__ import annotations

import csv
import io
import json
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedlens
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.api.label_curves import label_curve, write_label_model
from fedlens.api.runs import Run, open_run
from fedlens.api.simulations import chosen_config
from fedlens.cli import main
from fedlens.models.label_models import LabelModelError, read_label_model
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.learning.label_models import check_label_model
from fedlens.server.ledger.population import population_folder
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import node_users, simulated_federation
from fedlens.store import (
    EXPORTERS,
    Annotation,
    LabelRecord,
    ProjectRecord,
    SampleFilter,
    open_store,
)

FAST = {
    "data.users": 30,
    "data.samples_per_user": 4,
    "data.labels": "none",
    "privacy.delta": 1e-3,
    "tasks.warmup.generator_steps": 2,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 40,
}
NAMES = ("round", "straight", "artefact")


def as_flags(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def label(run: Run, project: str = "shapes") -> None:
    """A project whose label set people made, and answers: every other sample of either class."""
    labels = [LabelRecord(key=name[0], name=name) for name in NAMES[:2]]
    labels.append(LabelRecord(key="x", name="artefact", kind="artefact"))
    with open_store(run.store) as store:
        made = store.create_project(
            ProjectRecord(name=project, run_id=run.id, labels=tuple(labels)), even_noise=True
        )
        ids = [one.label_id for one in store.labels(made)]
        user = store.ensure_user("ann")
        for place, sample in enumerate(store.queue(made, user, 100)):
            answer = ids[2] if place == 0 else ids[place % 2]
            store.annotate(
                Annotation(
                    client_uuid=str(uuid.uuid4()),
                    project_id=made,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=answer,
                )
            )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unlabelled")


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    """The demo's schedule on records without labels, and labels of people."""
    flags = ["--preset", "demo", *as_flags(FAST), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "first")]) == 0
    run = open_run(folder / "first")
    label(run)
    return run


@pytest.fixture(scope="module")
def model(first: Run, folder: Path) -> Path:
    path = folder / "shapes.npz"
    write_label_model(first, "shapes", path, epochs=1, images=200)
    return path


def test_a_preset_runs_without_labels_and_leaves_out_what_needs_them(first: Run) -> None:
    assert first.config.schedule == ("card", "warmup", "critic")
    assert first.config.annotator is None
    assert first.config.release.agreement == 0
    assert simulated_federation(first.config.data, first.config.seed)[0].classes == 1


def test_no_label_of_the_data_set_reaches_a_node(first: Run) -> None:
    users = node_users(first.config, 0)
    assert users.classes == 1
    assert not np.asarray(users.labels).any()


def test_samples_are_unlabelled_in_the_store_the_api_and_exports(first: Run, folder: Path) -> None:
    with open_store(first.store) as store:
        found = store.samples(SampleFilter(run_id=first.id))
        assert {one.requested_class for one in found} == {None}
        assert store.requested_classes(first.id) == []
        assert all("UNLABELLED" in one.provenance for one in store.batches(first.id))
        project = store.projects()[0].project_id
        answers = store.labelled_samples(project)
    assert set(first.samples().labels.tolist()) == {-1}
    assert set(first.draw(5, seed=1).labels.tolist()) == {-1}
    table = list(csv.DictReader(io.StringIO(EXPORTERS["csv"].export(answers).decode())))
    assert {row["requested_class"] for row in table} == {""}
    tasks = json.loads(EXPORTERS["label-studio"].export(answers))
    assert {task["data"]["requested_class"] for task in tasks} == {None}
    assert EXPORTERS["huggingface"].export(answers)
    assert EXPORTERS["webdataset"].export(answers)


def test_a_sheet_of_unlabelled_samples_is_a_grid(first: Run) -> None:
    sheet = Image.open(first.path / "pictures" / "contact-sheet.png")
    assert sheet.width == 10 * 28 * 2  # and not one column of eight


def test_more_unlabelled_samples_are_drawn_of_no_class(first: Run) -> None:
    with open_store(first.store) as store:
        before = store.count_samples(SampleFilter(run_id=first.id))
    assert main(["labels", "refill", str(first.path), "--count", "3"]) == 0
    with open_store(first.store) as store:
        assert store.count_samples(SampleFilter(run_id=first.id)) == before + 3
        assert store.requested_classes(first.id) == []
    assert main(["labels", "refill", str(first.path), "--class", "0"]) != 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"schedule": "warmup critic annotator"}, r"\[tasks.annotator\] needs labels"),
        ({"tasks.annotator.rounds": 3}, r"\[tasks.annotator\] needs labels"),
        ({"data.fault": "swap_labels:0.5:classes=1,2"}, "records have no labels"),
        ({"data.fault": "rotate90:0.5:classes=1"}, "records have no labels"),
        (
            {
                "schedule": "ask",
                "tasks.ask.kind": "probe",
                "tasks.ask.probe": "label_share:3",
                "release.agreement": 0.0,
            },
            r"\[tasks.ask\] needs labels",
        ),
    ],
)
def test_what_needs_labels_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen_config("demo", settings={"data.labels": "none", **settings})


def test_a_probe_about_pixels_needs_no_labels() -> None:
    asked = {"schedule": "ask", "tasks.ask.kind": "probe", "tasks.ask.probe": "dark_border"}
    settings = {"data.labels": "none", "release.agreement": 0.0, **asked}
    assert chosen_config("demo", settings=settings).schedule == ("ask",)


def test_what_people_say_teaches_a_label_model(first: Run, folder: Path, capsys) -> None:
    out = folder / "by-command.npz"
    arguments = ["student", str(first.path), "--project", "shapes", "--epochs", "1"]
    assert main([*arguments, "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    # digits are not called round or straight: samples that people labelled are the test
    assert "kept from the student" in said["tested_on"]
    assert not said["simulation_only"]
    found = read_label_model(out)
    assert found.class_names == NAMES[:2]
    assert found.origin["run_id"] == first.id


def test_students_of_labels_are_tested_on_real_images_that_are_called_the_same(
    first: Run, capsys
) -> None:
    with open_store(first.store) as store:
        names = [LabelRecord(key=str(c), name=str(c)) for c in range(10)]
        made = store.create_project(
            ProjectRecord(name="digits", run_id=first.id, labels=tuple(names)), even_noise=True
        )
        ids, user = [one.label_id for one in store.labels(made)], store.ensure_user("bob")
        for place, sample in enumerate(store.queue(made, user, 20)):
            store.annotate(
                Annotation(
                    client_uuid=str(uuid.uuid4()),
                    project_id=made,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=ids[place % 10],
                )
            )
    assert main(["student", str(first.path), "--project", "digits", "--epochs", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["tested_on"] == "real test images of embedded"
    assert len(said["per_class"]) == 10
    with open_store(first.store) as store:
        asked = first.config, first.directory, store, "digits"
        curve = label_curve(*asked, epochs=1, shares=(0.01, 1.0))
    assert [count for count, _ in curve] == [20]  # nobody learns anything from a single label


def second_of(model: Path, **more: object) -> dict[str, object]:
    return {**FAST, "data.labels": f"model:{model}", "tasks.annotator.rounds": 2, **more}


def test_devices_name_their_records_by_the_label_model(model: Path) -> None:
    config = chosen_config("demo", settings=second_of(model))
    users, named = node_users(config, 0), read_label_model(model)
    assert users.classes == 2
    own = users.user(3)
    pixels = ((own.images.numpy() + 1) * 127.5).round().astype(np.uint8)
    assert named.name(pixels)[0].tolist() == own.labels.tolist()


def test_records_that_the_model_is_not_sure_of_take_no_part(model: Path) -> None:
    whole = chosen_config("demo", settings=second_of(model))
    named = read_label_model(model)
    dataset, dealt = simulated_federation(whole.data, whole.seed)
    sure = named.name(dataset.train_images[dealt.indices])[1]
    level = float(np.median(sure))
    some = chosen_config("demo", settings=second_of(model, **{"data.least_confidence": level}))
    _, kept = simulated_federation(some.data, some.seed)
    assert kept.users == dealt.users
    assert set(kept.indices.tolist()) == set(dealt.indices[sure >= level].tolist())
    for user in range(kept.users):
        assert set(kept.user(user).tolist()) <= set(dealt.user(user).tolist())


@pytest.mark.law("2: earlier runs are paid for")
def test_a_second_run_on_names_pays_for_the_first_one(
    first: Run, model: Path, folder: Path
) -> None:
    flags = ["--preset", "demo", *as_flags(second_of(model)), "--out", str(folder / "second")]
    assert main(["simulate", *flags]) == 0
    run = open_run(folder / "second")
    prior = PriorReleases.in_header(Ledger.read(run.directory.ledger).header)
    assert prior is not None
    assert prior.run_id == first.id
    alone = fedlens.open_run(first.path).summary.epsilon["dp"]
    both = run.summary.epsilon["dp"]
    assert alone is not None and both is not None and both > alone
    assert f"samples of run {first.id}" in run.statement()
    assert run.summary.student_accuracy is None  # no test image is called round or straight
    with open_store(run.store) as store:
        assert store.requested_classes(run.id) == [0, 1]


@pytest.mark.law("2: earlier runs are paid for")
def test_two_runs_of_a_population_share_its_budget(folder: Path) -> None:
    """What the first run was granted is not charged again for the second that builds on it."""
    name = "unlabelled-people"
    terms = PopulationTerms(population=name, unit="user", delta=1e-3, epsilon_budget=60.0, users=30)
    Population.create(population_folder(name), terms)
    shared = {"privacy.population": name}
    flags = ["--preset", "demo", *as_flags({**FAST, **shared}), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "shared-1")]) == 0
    run = open_run(folder / "shared-1")
    label(run)
    granted = len(Population.read(population_folder(name)).ledger)
    write_label_model(run, "shapes", folder / "shared.npz", epochs=1, images=200)
    settings = second_of(folder / "shared.npz", **shared)
    flags = ["--preset", "demo", *as_flags(settings), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "shared-2")]) == 0
    found = Population.read(population_folder(name)).ledger
    assert granted == 3
    assert len(found) == granted + 5  # card, warm-up, critic, two rounds of the annotator


def test_a_run_goes_on_with_the_label_model_that_it_began_with_alone(
    model: Path, folder: Path
) -> None:
    mine = folder / "mine.npz"
    mine.write_bytes(model.read_bytes())
    flags = ["--preset", "demo", *as_flags(second_of(mine)), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "third")]) == 0
    other = read_label_model(mine)
    mine.write_bytes(other.__class__(other.network, ("a", "b"), "cnn", other.origin).to_bytes())
    assert main(["resume", str(folder / "third"), "--no-student"]) != 0


def test_a_server_takes_no_path_that_is_relative_to_nobody_knows_where() -> None:
    config = Config().updated({"data.labels": "model:shapes.npz"})
    with pytest.raises(ConfigError, match="absolute path"):
        check_label_model(config)


def packed_zeros() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, weights=np.zeros(2**22, np.float32), facts=np.zeros(9, np.uint8))
    return file.getvalue()


def repacked(model: Path, compression: int) -> bytes:
    """A label model's own members, packed anew."""
    file = io.BytesIO()
    with zipfile.ZipFile(model) as kept, zipfile.ZipFile(file, "w", compression) as made:
        for name in kept.namelist():
            made.writestr(name, kept.read(name))
    return file.getvalue()


def test_what_may_grow_when_it_is_unpacked_is_no_label_model(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "packed.npz"
    path.write_bytes(repacked(model, zipfile.ZIP_STORED))
    assert read_label_model(path).class_names
    path.write_bytes(repacked(model, zipfile.ZIP_DEFLATED))
    with pytest.raises(LabelModelError, match="is no label model"):
        read_label_model(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"private": None}, {"epsilon": "lots"}, {"prior": "x"}, {"prior": {}},
        {"prior.other_people": True}, {"prior.releases": []}, {"prior.unrun": [[{}, 10**9]]},
    ],
)  # fmt: skip
@pytest.mark.law("2: earlier runs are paid for")
def test_a_file_that_does_not_say_what_it_cost_names_nothing(
    changes: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    kept = read_label_model(model)
    origin = json.loads(json.dumps(kept.origin))
    for key, value in changes.items():
        outer, _, inner = key.rpartition(".")
        (origin[outer] if outer else origin)[inner] = value
    path = tmp_path / "forged.npz"
    path.write_bytes(replace(kept, origin=origin).to_bytes())
    config = Config().updated({"data.labels": f"model:{path}"})
    with pytest.raises(ConfigError, match=r"does not say what|without noise"):
        check_label_model(config)


def test_names_are_few_and_told_apart(model: Path, tmp_path: Path) -> None:
    kept = read_label_model(model)
    path = tmp_path / "named.npz"
    for names in (("a", "a"), ("a", "b\n"), tuple(map(str, range(1001)))):
        path.write_bytes(replace(kept, class_names=names).to_bytes())
        with pytest.raises(LabelModelError, match="is no label model"):
            read_label_model(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", packed_zeros()])
def test_what_is_no_label_model_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    flags = ["--preset", "demo", *as_flags(second_of(path)), "--out", str(tmp_path / "run")]
    assert main(["simulate", *flags]) != 0
    assert not RunDirectory(tmp_path / "run").exists()


@pytest.mark.law("2: earlier runs are paid for")
def test_a_model_from_a_run_without_noise_names_nothing_in_a_private_one(
    first: Run, folder: Path, tmp_path: Path
) -> None:
    settings = {**FAST, "tasks.warmup.noise_multiplier": 0.0, "tasks.critic.noise_multiplier": 0.0}
    flags = ["--preset", "demo", *as_flags(settings), "--no-student"]
    assert main(["simulate", *flags, "--out", str(tmp_path / "open")]) == 0
    run = open_run(tmp_path / "open")
    label(run)
    write_label_model(run, "shapes", tmp_path / "open.npz", epochs=1, images=200)
    with pytest.raises(ConfigError, match="without noise"):
        fedlens.simulate("demo", settings=second_of(tmp_path / "open.npz"), out=tmp_path / "no")
