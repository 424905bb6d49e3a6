"""The Python API: what callers get, and what they are told when they err."""

from __future__ import annotations

import builtins
import csv
import inspect
import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fedlens
from fedlens.api.runs import Run
from fedlens.api.samples import MissingPackage
from fedlens.store import open_store


def test_importing_is_light():
    code = (
        "import sys, fedlens; fedlens.__version__; dir(fedlens);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'flwr', 'numpy', 'pydantic')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_planning_needs_no_training_framework():
    code = (
        "import sys, fedlens; fedlens.budget(sampling_rate=1, noise_multiplier=5, rounds=2,"
        "delta=1e-5); sys.exit(any(m in sys.modules for m in ('torch', 'flwr', 'pydantic')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_runs_releases_are_diagnosed_without_its_store():
    """Seconds before a diagnosis says what stands out, every import counts."""
    code = (
        "import sys; from fedlens.server.run.directory import RunDirectory;"
        "from fedlens.diagnosis.diagnose import diagnose;"
        "from fedlens.server.round.releases import load_releases;"
        "slow = ('sqlalchemy', 'alembic', 'scipy.stats', 'matplotlib', 'PIL');"
        "sys.exit(any(m in sys.modules for m in slow))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", fedlens.__all__)
def test_every_public_name_is_there_documented_and_typed(name):
    thing = getattr(fedlens, name)
    if isinstance(thing, str):
        return
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing):
        assert set(thing.__annotations__) == {*inspect.signature(thing).parameters, "return"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = fedlens.simulat


def test_a_run_tells_what_came_out_and_what_it_guarantees(tiny_run):
    summary = tiny_run.summary
    assert summary.rounds == summary.ledger_entries == 2 and summary.private
    said = tiny_run.statement()
    assert "differential privacy" in said and "Bayesian" in said and "adding or removing" in said
    assert said == summary.statement


def test_a_run_is_opened_again_and_resuming_a_finished_one_spends_nothing(tiny_run):
    opened = fedlens.open_run(tiny_run.path)
    assert opened == tiny_run and opened.summary == tiny_run.summary
    again = fedlens.resume(str(tiny_run.path), student=False).summary
    assert again.model_sha256 == tiny_run.summary.model_sha256
    assert again.ledger_entries == 2 and again.epsilon == tiny_run.summary.epsilon


def test_progress_is_told_in_order(tmp_path, tiny):
    seen = []
    fedlens.simulate(
        "demo",
        out=tmp_path / "run",
        settings={**tiny, "tasks.critic.rounds": 1},
        progress=seen.append,
        student=False,
    )
    assert seen and [p.round for p in seen] == sorted(p.round for p in seen)


def test_stored_samples_carry_where_they_come_from(tiny_run):
    samples = tiny_run.samples()
    assert samples.images.dtype == np.uint8 and samples.images.shape == (20, 1, 28, 28)
    assert samples.labels.dtype == np.int64 and len(samples) == 20
    origin = samples.provenance
    with open_store(tiny_run.store) as store:
        (batch,) = [b for b in store.batches(tiny_run.id) if b.purpose == "curated"]
    assert (origin.run_id, origin.round, origin.seed) == (batch.run_id, 2, batch.seed)
    assert origin.dp_epsilon == tiny_run.summary.epsilon["dp"] and origin.private
    assert origin.label == batch.provenance and batch.run_id in origin.words


def test_faithful_samples_are_told_from_curated_ones(tiny_run, tmp_path):
    curated, faithful = (tiny_run.samples(kind=p) for p in ("curated", "faithful"))
    assert "CURATED" in curated.provenance.words and "FAITHFUL" in faithful.provenance.words
    assert not np.array_equal(curated.images, faithful.images)
    assert np.isnan(faithful.agreement).all()  # nothing judges: the run has no annotator
    assert tiny_run.draw(3, seed=1, kind="faithful").provenance.kind == "faithful"
    tiny_run.export(tmp_path / "faithful.zip", kind="faithful")
    with zipfile.ZipFile(tmp_path / "faithful.zip") as file:
        names, said = file.namelist(), file.read("README.txt").decode()
        table = list(csv.DictReader(io.StringIO(file.read("samples.csv").decode())))
    assert len(names) == 22 and "FAITHFUL" in said and tiny_run.statement()[:40] in said
    assert "Bayesian DP epsilon" in said and len(table) == 20
    assert {row["purpose"] for row in table} == {"faithful"}
    with pytest.raises(fedlens.WrongUse, match="cannot be written"):
        tiny_run.export(tmp_path / "missing" / "faithful.zip")


def test_strips_are_told_by_round(tiny_run):
    first, last = (tiny_run.samples(kind="strip", round=n) for n in (1, 2))
    assert first.provenance.round == 1 and last.provenance.round == 2
    assert first.provenance.dp_epsilon < last.provenance.dp_epsilon
    with pytest.raises(fedlens.FedlensError, match="no strip samples of round 9"):
        tiny_run.samples(kind="strip", round=9)


def test_fresh_samples_follow_from_their_seed(tiny_run):
    one, same, other = (tiny_run.draw(12, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.images, same.images)
    assert not np.array_equal(one.images, other.images)
    assert (one.provenance.kind, one.provenance.stored, one.provenance.seed) == (
        "curated",
        False,
        5,
    )
    assert one.labels.tolist() == [*range(10), 0, 1]
    with pytest.raises(fedlens.WrongUse, match="count = 0"):
        tiny_run.draw(0, seed=1)
    with pytest.raises(fedlens.FedlensError, match="round 0 kept no generator"):
        tiny_run.draw(1, seed=1, round=0)


def test_samples_are_not_drawn_where_no_store_says_what_they_cost(tiny_run, tmp_path):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    open_store(url, create=True).close()
    with pytest.raises(fedlens.FedlensError, match="no samples in its store"):
        Run(tiny_run.path, url).draw(1, seed=1)


def test_samples_are_a_torch_data_set(tiny_run):
    samples = tiny_run.samples()
    pairs = samples.torch()
    image, label = pairs[3]
    assert image.dtype == torch.float32 and image.shape == (1, 28, 28)
    assert torch.equal((image * 255).round().to(torch.uint8), torch.tensor(samples.images[3]))
    assert label == samples.labels[3] and len(pairs) == 20
    batch, labels = next(iter(DataLoader(pairs, batch_size=8)))
    assert batch.shape == (8, 1, 28, 28) and labels.dtype == torch.int64


def test_without_hugging_face_s_package_the_fix_is_named(tiny_run, monkeypatch):
    real = builtins.__import__

    def absent(name, *more):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPackage, match=r"pip install 'fedlens\[datasets\]'"):
        tiny_run.samples().datasets()


def test_samples_are_a_hugging_face_data_set_where_that_is_installed(tiny_run):
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    samples = tiny_run.samples()
    made = samples.datasets()
    assert np.array_equal(np.asarray(made[3]["image"]), samples.images[3, 0])
    assert made["label"] == samples.labels.tolist()
    assert made.info.description == samples.provenance.words


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"preset": "nothing"}, "choose one of"),
        ({"transport": "pigeon"}, "choose one of in-process, processes, ray"),
        ({"delta": 1e-5}, "give epsilon too"),
        ({"settings": {"privacy.delt": 1}}, "privacy.delta"),
        ({"config": "/nowhere/x.toml"}, "/nowhere/x.toml"),
    ],
)
def test_wrong_use_is_named_and_leaves_no_run(tmp_path, changes, said):
    with pytest.raises(fedlens.WrongUse, match=said):
        fedlens.simulate(**{"preset": "demo", "out": tmp_path / "run", **changes})
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(fedlens.FedlensError, match=r"holds no run: no config\.toml"):
        fedlens.open_run(tmp_path)
    with pytest.raises(fedlens.FedlensError, match="holds no run: no such folder"):
        fedlens.open_run(tmp_path / "nowhere")


def test_a_budget_and_its_calibration_agree():
    schedule = {"sampling_rate": 0.01, "rounds": 1000, "delta": 1e-5}
    cost = fedlens.budget(**schedule, noise_multiplier=1.0)
    assert cost.epsilon == pytest.approx(1.8282367, abs=2e-6)
    assert cost.delta_at(cost.epsilon) == pytest.approx(1e-5, rel=1e-4)
    found = fedlens.calibrate(**schedule, epsilon=cost.epsilon)
    assert found.noise_multiplier == pytest.approx(1.0, rel=1e-3)
    assert found.budget.epsilon <= cost.epsilon and found.moments > found.noise_multiplier


def test_releases_of_one_name_are_all_priced():
    schedule = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "rounds": 10, "delta": 1e-5}
    once = fedlens.budget(**schedule, releases=[("counts", 5.0)])
    twice = fedlens.budget(**schedule, releases=[("counts", 5.0), ("counts", 5.0)])
    assert twice.epsilon > once.epsilon


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"delta": 2.0}, {"users": 0}])
def test_a_schedule_that_cannot_be_priced_is_wrong_use(wrong):
    right = {"sampling_rate": 0.5, "noise_multiplier": 1.0, "rounds": 1, "delta": 1e-5}
    with pytest.raises(fedlens.WrongUse):
        fedlens.budget(**{**right, **wrong})


def test_an_audit_of_a_run_is_kept_and_of_a_preset_is_not(tiny_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = {"kind": "one-run", "canaries": 200}
    found = fedlens.audit(tiny_run, **few)
    assert not found.alarm and found.path == tiny_run.path / "audit.json" and found.path.exists()
    assert fedlens.audit("wgan", **few, rounds=5).path is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(fedlens.WrongUse, match="needs a RUN_DIR"):
        fedlens.audit("demo", kind="membership")
