"""Test images of somebody's own data are in no ledger: nothing looks at them unasked."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.api.diagnoses import diagnose, has_public_records, power
from fedlens.api.runs import Run
from fedlens.data.registry import DATASETS
from fedlens.diagnosis.report import Diagnosis, FoundFault, Omnibus, ReferenceFit
from fedlens.diagnosis.stored_answers import PUBLIC, PUBLIC_BY_PATH, is_public
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory


def a_run(tmp_path, name: str, **changes: object) -> Run:
    settings = {"data.name": name, "data.users": 10, "data.nodes": 1}
    config = Config().updated(settings | changes)
    directory = RunDirectory.create(tmp_path / "run", config)
    return Run(directory.path, directory.default_store)


def said(*probes: str) -> Diagnosis:
    """A diagnosis with a finding for each of these questions."""
    findings = (
        FoundFault("rotate90", "turned", None, 0.3, 0.2, 0.4, 0.0, (1,), probe=one)
        for one in probes
    )
    fit = ReferenceFit("embedded", 10, True, "", 0.0)
    return Diagnosis(tuple(findings), Omnibus(0.5), {}, fit, ("warmup",), 1, 4)


def diagnosed_as(found: Diagnosis, monkeypatch) -> dict[str, object]:
    """Have every diagnosis find this; what the next one is given."""
    given: dict[str, object] = {}

    def diagnosed(*_, **named):
        given.update(named)
        return found

    monkeypatch.setattr("fedlens.diagnosis.diagnose.diagnose", diagnosed)
    return given


@pytest.mark.law("3: a diagnosis looks at public records only")
def test_a_diagnosis_takes_no_private_test_images_for_its_reference(tmp_path):
    source = np.random.default_rng(0)
    images = source.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    path = tmp_path / "patients.npz"
    np.savez(
        path, train_images=images, train_labels=np.arange(30) % 10,
        test_images=images[:20], test_labels=np.arange(20) % 10,
    )  # fmt: skip
    run = a_run(tmp_path, f"npz:{path}")
    with pytest.raises(WrongUse, match="not known to be public"):
        diagnose(run)
    with pytest.raises(WrongUse, match="kept no release"):
        diagnose(run, reference=f"npz:{path}")  # to name them is to declare them public


@pytest.mark.parametrize("name", ["embedded", "npz"])
def test_what_is_expected_of_public_records_alone_is_stored_in_the_runs_folder(
    tmp_path, monkeypatch, name
):
    """What is computed from records that somebody brought is not kept beside what is released."""
    source, path = np.random.default_rng(0), tmp_path / "patients.npz"
    images, labels = source.integers(0, 256, (30, 28, 28), dtype=np.uint8), np.arange(30) % 10
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    given = diagnosed_as(said(), monkeypatch)
    run = a_run(tmp_path, "embedded")
    diagnose(run, reference=f"npz:{path}" if name == "npz" else name)
    assert given["stored_at"] == (run.path / "diagnosis" if name == "embedded" else None)


@pytest.mark.parametrize("trained", [True, False])
def test_a_finding_says_whether_its_users_can_be_asked_its_probe(tmp_path, monkeypatch, trained):
    """Without an annotator of its own a run's users are asked only what needs no network."""
    known = {"schedule": "annotator critic", "tasks.annotator.kind": "annotator"}
    run = a_run(tmp_path, "embedded", **(known if trained else {}))
    diagnosed_as(said("better_after:rotate270", "repeats", ""), monkeypatch)
    asks, plain, none = (one.probe_refusal for one in diagnose(run).findings)
    assert (asks == "") == trained and (plain, none) == ("", "")
    assert trained or "run with an annotator" in asks


def test_nor_does_the_power_of_a_schedule(tmp_path):
    config = Config().updated({"data.name": f"npz:{tmp_path}/none.npz"})  # it is not even opened
    with pytest.raises(WrongUse, match="not known to be public"):
        power(config=config)


@pytest.mark.parametrize(
    "name, public",
    [
        ("embedded", True), ("fashion-mnist", True), ("cifar10:/data/cifar", True),
        ("medmnist:/data/blood.npz", True), ("npz:/data/a.npz", False), ("tree:pictures", False),
        ("folder:p,utility=a,sensitive=b", False), ("hf:somebody/faces", False),
        ("of-another-package", False),
    ],
)  # fmt: skip
def test_data_that_somebody_brought_are_not_taken_for_public(name, public):
    assert is_public(name) is has_public_records(name) is public


def test_pages_know_each_data_set_that_says_that_it_is_public():
    said = {name: DATASETS[name].needs_path for name in DATASETS if DATASETS[name].public}
    assert said == dict.fromkeys(PUBLIC, False) | dict.fromkeys(PUBLIC_BY_PATH, True)
