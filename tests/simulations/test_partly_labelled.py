"""Data of which some users' records have labels: one run on all of it, and a second on names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.api.runs import Run, open_run
from fedlens.api.simulations import chosen_config
from fedlens.cli import main
from fedlens.client.users.views import ClasslessUsers
from fedlens.data.dataset import DatasetError
from fedlens.data.registry import load
from fedlens.diagnosis.evidence import observed_of
from fedlens.foundation.unlabelled import NO_CLASS
from fedlens.models.label_models import make_label_model, read_label_model
from fedlens.models.students import build_student
from fedlens.server.config.tree import ConfigError
from fedlens.server.round.releases import load_releases
from fedlens.simulations.federation.apps import node_users, simulated_federation
from fedlens.store import SampleFilter, open_store

FAST = {
    "data.users": 30,
    "data.samples_per_user": 4,
    "data.labels": "own-or-none",
    "data.labelled_users": 0.3,
    "privacy.delta": 1e-3,
    "tasks.warmup.generator_steps": 2,
    "tasks.critic.generator_steps": 2,
    "tasks.annotator.rounds": 2,
    "tasks.annotator.components": 20,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 40,
}


def as_flags(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partly")


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    """The demo's schedule, of whose users three in ten have labels."""
    flags = ["--preset", "demo", *as_flags(FAST), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "first")]) == 0
    return open_run(folder / "first")


@pytest.fixture(scope="module")
def model(first: Run, folder: Path) -> Path:
    """What the run's own annotator taught, as a label model."""
    path = folder / "digits.npz"
    said = ["student", str(first.path), "--labels", "annotator", "--images", "300"]
    assert main([*said, "--epochs", "1", "--out", str(path)]) == 0
    return path


def test_three_in_ten_users_have_labels_and_all_have_images(first: Run) -> None:
    users = node_users(first.config, 0)
    whole = node_users(first.config.updated({"data.labels": "own", "data.labelled_users": 1.0}), 0)
    bare = 0
    for position in range(len(users)):
        mine, own = users.user(position), whole.user(position)
        assert mine.images.equal(own.images)
        labels = set(mine.labels.tolist())
        assert labels == {NO_CLASS} or mine.labels.equal(own.labels)
        bare += labels == {NO_CLASS}
    other = node_users(first.config, 1)
    bare += sum(set(other.user(i).labels.tolist()) == {NO_CLASS} for i in range(len(other)))
    assert bare == 21


def test_where_no_class_is_asked_for_all_records_are_of_one(first: Run) -> None:
    users = node_users(first.config, 0)
    seen = ClasslessUsers(users)
    assert seen.classes == 1
    assert all(not seen.user(i).labels.any() for i in range(len(users)))
    assert all(seen.user(i).images.equal(users.user(i).images) for i in range(len(users)))


def test_samples_are_unlabelled_and_the_annotator_knows_classes(first: Run) -> None:
    assert first.config.schedule == ("card", "warmup", "critic", "annotator")
    assert first.config.annotator is not None
    assert first.config.annotator.guided_steps == 0
    assert first.config.release.agreement == 0
    with open_store(first.store) as store:
        assert {one.requested_class for one in store.samples(SampleFilter(run_id=first.id))} == {
            None
        }
    assert first.summary.student_accuracy is None


def test_a_diagnosis_goes_by_what_is_of_all_users(first: Run) -> None:
    kept = load_releases(first.path)
    assert [one.classes for one in kept] == [1, 1, 1, 10, 10]
    assert observed_of(kept).tasks == ("card", "warmup", "critic")


def test_a_student_of_the_annotator_s_labels_is_measured_and_kept(
    first: Run, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_label_model(model)
    assert found.class_names == tuple(simulated_federation(first.config.data, 0)[0].class_names)
    assert found.origin["run_id"] == first.id
    assert main(["student", str(first.path)]) == 1  # samples were asked for no class
    said = ["student", str(first.path), "--labels", "annotator", "--images", "200", "--json"]
    assert main([*said, "--epochs", "1"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["simulation_only"] and len(told["per_class"]) == 10


@pytest.mark.law("2: earlier runs are paid for")
def test_a_second_run_keeps_people_s_own_labels_and_pays_for_the_first(
    first: Run, model: Path, folder: Path
) -> None:
    second = {**FAST, "data.labels": f"own-or-model:{model}"}
    flags = ["--preset", "demo", *as_flags(second), "--no-student"]
    assert main(["simulate", *flags, "--out", str(folder / "second")]) == 0
    run = open_run(folder / "second")
    prior = PriorReleases.in_header(Ledger.read(run.directory.ledger).header)
    assert prior is not None and prior.run_id == first.id
    before, now = (simulated_federation(one.config.data, 0)[0] for one in (first, run))
    named = before.train_labels == NO_CLASS
    places = simulated_federation(run.config.data, 0)[1].indices
    kept = places[~named[places]]
    assert len(kept) and (now.train_labels[kept] == before.train_labels[kept]).all()
    some = places[named[places]][:50]
    by_model, _ = read_label_model(model).name(before.train_images[some])
    assert now.train_labels[some].tolist() == by_model.tolist()


def test_own_labels_are_kept_however_sure_the_model_is(first: Run, model: Path) -> None:
    changes = {"data.labels": f"own-or-model:{model}", "data.least_confidence": 0.999}
    config = chosen_config("demo", settings={**FAST, **changes})
    _, kept = simulated_federation(config.data, 0)
    before, dealt = simulated_federation(first.config.data, 0)
    own = dealt.indices[before.train_labels[dealt.indices] != NO_CLASS]
    assert set(own.tolist()) <= set(kept.indices.tolist())
    assert len(kept.indices) < len(dealt.indices)


def test_classes_that_are_called_otherwise_cannot_be_kept(first: Run, folder: Path) -> None:
    network = build_student("cnn", (1, 28, 28), 2)
    path = folder / "other.npz"
    path.write_bytes(make_label_model(network, ("dark", "bright"), "cnn", {}).to_bytes())
    data = first.config.data.model_copy(update={"labels": f"own-or-model:{path}"})
    with pytest.raises(DatasetError, match="called the same"):
        simulated_federation(data, 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks.annotator.guided_steps": 5}, "guided_steps"),
        ({"release.agreement": 0.5}, "release.agreement = 0"),
        ({"data.fault": "swap_labels:0.5:classes=1,2"}, "not all records have labels"),
        ({"data.labels": "own", "data.labelled_users": 0.5}, "labelled_users"),
        ({"data.labels": "own-or-own"}, "own-or-none"),
    ],
)
def test_what_asks_for_every_record_s_class_is_refused(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        chosen_config("demo", settings={**FAST, **settings})


def archive(path: Path) -> Path:
    """Twelve records of three people, of whom one has labels."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 16), np.uint8)
    labels = np.array([0, 1, 1, 0] + [NO_CLASS] * 8)
    np.savez(
        path, train_images=pixels, train_labels=labels, user_ids=np.repeat([3, 4, 5], 4),
        test_images=pixels[:4], test_labels=np.array([0, 1, 0, 1]), classes=2,
    )  # fmt: skip
    return path


def manifest(folder: Path) -> Path:
    """The same as a table, whose cells of classes are empty where nobody said one."""
    from PIL import Image

    with np.load(archive(folder / "own.npz")) as held:
        pixels, labels, users = (held[f"{n}"] for n in ("train_images", "train_labels", "user_ids"))
    rows = ["file,label,user,split"]
    for place, (image, label, user) in enumerate(zip(pixels, labels, users, strict=True)):
        Image.fromarray(image).save(folder / f"{place}.png")
        word = "" if label == NO_CLASS else ("cat", "dog")[label]
        rows.append(f"{place}.png,{word},{user},{'test' if place in (0, 1, 11) else 'train'}")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize("kind", ["npz", "manifest"])
def test_files_may_leave_labels_out_and_have_to_say_so(kind: str, tmp_path: Path) -> None:
    made = archive(tmp_path / "own.npz") if kind == "npz" else manifest(tmp_path)
    name = f"{kind}:{made}"
    if kind == "npz":
        with pytest.raises(DatasetError, match=r"8 of 12 .*own-or-none"):
            load(name)
    settings = {"data.name": name, "data.scheme": "column", "data.users": 3, "data.nodes": 1}
    config = chosen_config("demo", settings={**FAST, **settings, "data.labelled_users": 1.0})
    dataset, dealt = simulated_federation(config.data, 0)
    assert dataset.classes == 2 and dealt.users == 3
    labelled = int((dataset.train_labels != NO_CLASS).sum())
    assert (labelled, len(dataset.train_labels)) == ((4, 12) if kind == "npz" else (2, 9))
    assert (dataset.test_labels != NO_CLASS).all()  # one test record of the table has no label
    assert len(dataset.test_labels) == (4 if kind == "npz" else 2)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", ["image-folder", "tree"])
def test_pictures_in_a_folder_called_unlabelled_train_and_are_no_class(
    kind: str, beside: bool, tmp_path: Path
) -> None:
    """Among the classes, or beside the parts: then none of the test is unlabelled."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (24, 16, 16), np.uint8)
    for place, image in enumerate(pixels):
        part = "test" if place % 4 == 3 else "train"
        folder = tmp_path / part / ("cat", "dog", "unlabelled")[place % 3]
        if beside and folder.name == "unlabelled":
            if part == "test":
                continue
            folder = tmp_path / folder.name
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{place}.png")
    name = f"{kind}:{tmp_path}"
    found = load(name, partly=True)
    assert found.class_names == ("cat", "dog")
    assert np.bincount(found.train_labels - NO_CLASS).tolist() == [6, 6, 6]
    assert np.bincount(found.test_labels).tolist() == [2, 2]
    if kind == "image-folder":
        with pytest.raises(DatasetError, match=r"6 of 18 .*own-or-none"):
            load(name)
    else:
        assert np.bincount(load(name).train_labels).tolist() == [6, 6]


@pytest.mark.parametrize("kind", ["image-folder", "tree"])
def test_a_training_part_with_an_unlabelled_folder_beside_it_is_a_part(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a test part, and with a folder of labelled pictures that is called so."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16), np.uint8)
    for place, image in enumerate(pixels):
        folder = tmp_path / ("train/cat", "train/dog", "unlabelled", "unlabeled/dog")[place % 4]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{place}.png")
    found = load(f"{kind}:{tmp_path}", partly=True)
    assert found.class_names == ("cat", "dog")
    assert (found.train_labels == NO_CLASS).sum() == 10
    assert len(found.test_labels) > 0 and (found.test_labels != NO_CLASS).all()
    assert "10 left out, in 'unlabeled', beside the parts" in caplog.text


def test_labels_that_are_missing_deal_no_records_out(tmp_path: Path) -> None:
    name = f"npz:{archive(tmp_path / 'own.npz')}"
    changes = {"data.name": name, "data.users": 3, "data.scheme": "classes", "data.nodes": 1}
    config = chosen_config("demo", settings={**FAST, **changes, "data.labelled_users": 1.0})
    with pytest.raises(DatasetError, match=r"8 of 12 .*have no label: set data.scheme"):
        simulated_federation(config.data, 0)
