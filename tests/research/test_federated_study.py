"""The study of a run that trains its own filter: who is attacked with what, and that it tells."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.tables import Row
from fedlens.privatizers.private_data import PrivateData
from fedlens.server.config.schedule import planned_epsilon, scheduled
from fedlens.server.config.tree import Config
from fedlens.server.learning.privatizer import kept_filter_weights
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import simulated_federation, simulated_sensitive
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.study import run_seeds
from fedlens_research.papers import STUDIES, federated, federated_data
from fedlens_research.papers.federated import FederatedSettings
from fedlens_research.papers.federated_data import (
    FilteredRun,
    groups_of,
    opened,
    private_images,
    samples_of,
)

TINY = {
    "data.users": 40,
    "data.samples_per_user": 20,
    "privacy.delta": 1e-3,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 40,
    "generator.width": 8,
    "release.samples": 20,
    "release.strip": 1,
    "schedule": "privatizer critic",
    "tasks.privatizer.kind": "privatizer",
    "tasks.privatizer.rounds": 1,
    "tasks.privatizer.adversary_width": 4,
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "privatizer.network": "dense",
    "privatizer.width": 4,
}
FIRST = ("raw", "filtered", "samples", "transfer", "taught")
SETTINGS = FederatedSettings("private-thickness", ("logistic",), 10, 20, samples=80, epochs=1)


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    monkeypatch.setattr(federated_data, "MOST", 600)


def configured(monkeypatch, **changes) -> Config:
    given = {f"privatizer.{key}": value for key, value in changes.items()}
    config = Config().updated({**TINY, **given})
    monkeypatch.setattr(federated, "_config", lambda settings, seed, data_dir: config)
    return config


class Hiding(nn.Module):
    """Black images of whoever hides, images as they are of the others."""

    noise_shape = (1,)

    def forward(self, records, noise, choice=None):
        hidden = torch.ones(()) if choice is None else choice[:, :, None, None]
        return records * (1 - hidden) - hidden


def trained(config) -> FilteredRun:
    dataset, _ = simulated_federation(config.data, config.seed)
    sensitive = simulated_sensitive(config)
    test = private_images(
        dataset.test_images[:600], dataset.test_labels[:600], sensitive.test[:600], 10
    )
    return FilteredRun(config, Hiding(), None, test, test, 0, test)


def test_a_run_is_trained_attacked_and_taken_up_again(monkeypatch, tmp_path):
    config = configured(monkeypatch, condition=True)
    told = []

    def run() -> list[Row]:
        study, told_by = STUDIES["federated"], told.append
        return run_seeds(study, SETTINGS, seeds=[0], data_dir=None, out=tmp_path, report=told_by)

    rows = run()
    assert [row["where"] for row in rows] == [*FIRST]
    assert all(0.3 < row["attacker"] <= 1 for row in rows)
    assert rows[0]["attacker"] > 0.6  # there is something to hide
    assert {row["epsilon"] for row in rows} == {planned_epsilon(config, 1e-3)}
    assert rows[3]["utility"] is None and rows[0]["utility"] is not None
    assert sum(not line.startswith("round ") for line in told) == 1 + len(FIRST)
    assert [line for line in told if line.startswith("round ")], "progress while it trains"
    assert (tmp_path / "federated-sheet.png").is_file()
    assert run() == rows, "a finished seed is read"
    shutil.rmtree(tmp_path / "trials")
    assert run() == rows, "a finished run is taken up"


def test_a_second_run_learns_from_filtered_images_and_both_are_paid_for(monkeypatch, tmp_path):
    config = configured(monkeypatch, condition=True, width=5)
    twice = replace(SETTINGS, second=True)
    rows = run_seeds(
        STUDIES["federated"],
        twice,
        seeds=[0],
        data_dir=None,
        out=tmp_path,
        report=lambda line: None,
    )
    first, second_rows = rows[: len(FIRST)], rows[len(FIRST) :]
    assert [row["where"] for row in second_rows] == [f"second {name}" for name in FIRST[2:]]
    second = RunDirectory.open(tmp_path / "second-0")
    filters = [
        kept_filter_weights(directory.config(), directory.load_state().arrays)
        for directory in (RunDirectory.open(tmp_path / "run-0"), second)
    ]
    assert np.array_equal(*filters)
    found = second.config()
    filter_ = found.privatizer
    assert filter_.kind == "pretrained" and filter_.width == 5 and filter_.condition
    assert found.schedule == ("critic",)
    together = DifferentialAccountant()
    for made in (config, found):
        for task in scheduled(made):
            together.compose(task.event, task.rounds)
    assert {row["epsilon"] for row in second_rows} == {together.epsilon(1e-3).epsilon}
    assert second_rows[0]["epsilon"] > first[0]["epsilon"]
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    shutil.rmtree(moved / "trials")
    assert rows == run_seeds(
        STUDIES["federated"], twice, seeds=[0], data_dir=None, out=moved, report=lambda line: None
    )


def test_what_is_attacked_is_nobodys_and_is_filtered(monkeypatch, tmp_path):
    config = configured(monkeypatch)
    run_seeds(
        STUDIES["federated"],
        SETTINGS,
        seeds=[0],
        data_dir=None,
        out=tmp_path,
        report=lambda line: None,
    )
    found = opened(config, RunDirectory(tmp_path / "run-0"), 0)
    dataset, dealt = simulated_federation(config.data, config.seed)
    free = np.setdiff1d(np.arange(len(dataset.train_labels)), dealt.indices)[:600]
    raw = torch.from_numpy(dataset.train_images[free].astype(np.float32)) / 127.5 - 1
    assert torch.allclose(found.attack.records, raw, atol=1e-6)
    shown = found.filtered(found.attack)
    assert not torch.equal(shown.records, raw) and torch.equal(
        shown.sensitive, found.attack.sensitive
    )
    black = replace(found, network=Hiding())
    assert float(black.filtered(found.attack).records.max()) == -1


def test_groups_are_told_apart_by_what_they_chose(monkeypatch):
    config = configured(monkeypatch, consenting=0.4, network="unet")
    rows = federated._rows(SETTINGS, trained(config))
    read = {row["where"]: row["attacker"] for row in rows}
    assert read["consenting"] > 0.58
    assert read["observed"] == read["unobserved"] == read["filtered"] == 0.5
    assert groups_of(trained(configured(monkeypatch))) == {}


def test_the_formula_attacks_where_the_secret_has_one(monkeypatch):
    made = trained(configured(monkeypatch))
    patient = replace(SETTINGS, attacker_steps=150)
    raw, filtered = federated._rows(patient, made)
    assert raw["attacker_formula"] > 0.65 and filtered["attacker_formula"] == 0.5
    assert raw["attacker"] == max(raw["attacker_formula"], raw["attacker_logistic"])
    monkeypatch.setattr(federated, "FORMULAS", {})  # as for any other secret
    assert "attacker_formula" not in federated._rows(SETTINGS, made)[0]


def test_samples_are_read_with_the_secret_that_was_asked_for(monkeypatch):
    made = trained(configured(monkeypatch, condition=True))

    class Telling:
        """Bright images of secret 1, dark ones of secret 0."""

        classes = 20

        def draw(self, asked, seed):
            return (asked % 2).float()[:, None, None, None].expand(-1, 1, 28, 28) - 0.5

    samples = samples_of(replace(made, sampler=Telling()), 40)
    assert isinstance(samples, PrivateData) and samples.sensitive_classes == 2
    assert torch.equal(samples.utility, torch.arange(40) % 20 // 2)
    assert bool(((samples.records[:, 0, 0, 0] > 0) == (samples.sensitive == 1)).all())


def test_a_configuration_of_one_s_own_is_named_by_its_path(tmp_path):
    own = (
        'schedule = "privatizer critic"\n[tasks.privatizer]\nkind = "privatizer"\n'
        '[tasks.critic]\nkind = "frozen"\n[privatizer]\nkind = "trained"\n'
        'trained_by = "rounds"\nconsenting = 0.4\n'
    )
    (tmp_path / "own.toml").write_text(own)
    found = federated._config(replace(SETTINGS, preset=str(tmp_path / "own")), 5, None)
    assert found.privatizer.consenting == 0.4 and found.seed == 5


def test_a_preset_without_a_privatizer_is_refused(tmp_path):
    with pytest.raises(StudyError, match="trains no privatizer"):
        federated._config(replace(SETTINGS, preset="demo"), 0, None)
    (tmp_path / "pretrained.toml").write_text('[privatizer]\nkind = "pretrained"\npath = "/x"\n')
    with pytest.raises(StudyError, match="trains no privatizer"):
        federated._config(replace(SETTINGS, preset=str(tmp_path / "pretrained")), 0, None)
    with pytest.raises(StudyError, match="no run with a privatizer"):
        opened(Config().updated(TINY), RunDirectory(tmp_path), 0)


def test_the_whole_form_conditions_on_its_secret_and_the_quick_one_trains_no_generator():
    whole, quick = (
        federated._config(STUDIES["federated"].settings(quick=form), 3, None)
        for form in (False, True)
    )
    assert whole.privatizer.pairs and whole.seed == quick.seed == 3
    assert quick.privatizer.training == "sums" and quick.schedule == ("frequencies", "moments")


def test_a_run_takes_settings_over_its_presets():
    settings = replace(SETTINGS, run=("privatizer.steps=7", "data.users=50"))
    config = federated._config(settings, 3, None)
    assert (config.privatizer.steps, config.data.users, config.seed) == (7, 50, 3)
    with pytest.raises(FedlensError, match="steps"):
        replace(SETTINGS, run=("privatizer.steps",))
