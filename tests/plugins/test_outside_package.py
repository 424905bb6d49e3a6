"""A package that is not ours brings one plug-in of each kind, and each is used for real."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import fedlens
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.dashboard.serve import MAIN_SCRIPT
from fedlens.dashboard.widgets.options import STORE_VARIABLE, USER_VARIABLE
from fedlens.data.attributes import load_private
from fedlens.data.registry import load
from fedlens.diagnosis.hypotheses import library
from fedlens.models.faults import FAULTS
from fedlens.models.faults.planting import parse_faults
from fedlens.privatizers import fitting
from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.tasks import moments
from fedlens.store import (
    EXPORTERS,
    Annotation,
    LabelRecord,
    ProjectRecord,
    SampleFilter,
    open_store,
)
from fedlens_research.tradeoff.report import CurvePlan, run_curve

LABELS = (
    LabelRecord(key="0", name="stands"),
    LabelRecord(key="1", name="lies"),
    LabelRecord(key="q", name="unknown class", kind="unknown"),
)
PACKAGE = Path(__file__).parent / "outside_package"
FAST = {
    "data.users": 40,
    "data.samples_per_user": 5,
    "privacy.delta": 1e-3,
    "generator.batch": 40,
    "generator.width": 8,
    "release.samples": 20,
    "release.strip": 1,
    "release.agreement": 0.0,
}

SUMS = {
    "schedule": "first second critic",
    "privacy.fixed_seed": 3,
    "privatizer.kind": "trained",
    "privatizer.trained_by": "sums",
    "privatizer.width": 8,
    "privatizer.steps": 3,
    "privatizer.highest_frequency": 5,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 2,
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder that the package was installed into, from a copy."""
    source = tmp_path_factory.mktemp("source") / "outside"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("target")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    install += ["--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run(install, check=True)
    return target


@pytest.fixture(autouse=True)
def outside(installed, monkeypatch) -> None:
    """The package, found as any installed one is."""
    monkeypatch.syspath_prepend(str(installed))


@pytest.fixture(scope="module")
def run(installed, tmp_path_factory) -> fedlens.Run:
    """A federation with the package's data set and task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        return fedlens.simulate(
            "open",
            out=tmp_path_factory.mktemp("outside") / "run",
            settings={
                **FAST,
                "schedule": "coarse",
                "data.name": "stripes",
                "tasks.coarse.kind": "coarse",
                "tasks.coarse.side": 14,
                "tasks.coarse.rounds": 2,
                "tasks.coarse.noise_multiplier": 2.0,
                "tasks.coarse.generator_steps": 20,
            },
        )


def test_its_data_set_and_its_task_make_a_run(run):
    summary = run.summary
    assert summary.rounds == summary.ledger_entries == 2 and summary.private
    assert set(run.samples().labels) == {0, 1}
    assert run.config.tasks["coarse"].side == 14
    assert "coarse critic update" in run.directory.ledger.read_text()
    assert 0 <= summary.student_accuracy <= 1  # tested on the data set's own images


def test_its_critic_trains_in_record_mode_whatever_its_layers(tmp_path):
    run = fedlens.simulate(
        "open",
        out=tmp_path / "run",
        student=False,
        settings={
            **FAST,
            "privacy.unit": "record",
            "privacy.delta": 1e-6,
            "schedule": "critic",
            "tasks.critic.kind": "normed",
            "tasks.critic.rounds": 2,
            "tasks.critic.sampling_rate": 0.3,
            "tasks.critic.noise_multiplier": 1.0,
            "tasks.critic.generator_steps": 2,
        },
    )
    assert run.summary.rounds == 2 and run.summary.private
    with open_store(run.store) as store:
        rounds = store.rounds(run.id)
    assert all(one.metrics["moved"] > 0 for one in rounds) and len(rounds) == 2


def test_its_task_is_refused_like_ours(tmp_path):
    with pytest.raises(fedlens.WrongUse, match=r"tasks\.coarse\.side = 99"):
        fedlens.simulate(
            "open",
            out=tmp_path / "run",
            settings={"schedule": "coarse", "tasks.coarse.kind": "coarse", "tasks.coarse.side": 99},
        )


@pytest.mark.parametrize("registry", [TASK_KINDS, CLIENT_TASKS], ids=["server", "client"])
def test_an_unknown_task_is_told_of_it(registry):
    with pytest.raises(fedlens.WrongUse, match="coarse"):
        registry["coarze"]


def test_its_fault_is_planted_and_tried_by_a_diagnosis():
    planted = parse_faults("fog:0.5:amount=0.25")[0]
    assert planted.fault is FAULTS["fog"] and planted.amount == 0.25
    assert any(one.fault is planted.fault for one in library((1, 28, 28), 10))


def test_its_privatizer_trains_in_a_federation(tmp_path):
    run = fedlens.simulate(
        "open",
        out=tmp_path / "run",
        student=False,
        settings={
            **FAST,
            "schedule": "privatizer critic",
            "privatizer.kind": "trained",
            "privatizer.trained_by": "rounds",
            "privatizer.width": 2,
            "tasks.privatizer.kind": "privatizer",
            "tasks.privatizer.method": "gentle",
            "tasks.privatizer.rounds": 1,
            "tasks.privatizer.adversary_width": 2,
            "tasks.critic.kind": "frozen",
            "tasks.critic.rounds": 1,
            "tasks.critic.generator_steps": 2,
        },
    )
    assert run.summary.rounds == 2
    assert fedlens.privatizer.load(run.path).shape == (1, 28, 28)


@pytest.fixture
def a_filter_in_no_time(monkeypatch) -> None:
    """A filter of sums that hardly learns."""
    for name, value in (("SAMPLES", 200), ("HELD", 100), ("READING_STEPS", 2)):
        monkeypatch.setattr(moments, name, value)
    monkeypatch.setattr(moments, "SERVING_STEPS", 2)
    for name in ("FIRST", "LATER"):
        monkeypatch.setattr(fitting, name, replace(getattr(fitting, name), meeting=2))


def made_of_sums(out: Path, first: str, second: str, **more: object) -> fedlens.Run:
    """A run whose filter is made in tasks of two kinds, and a critic that looks through it."""
    return fedlens.simulate(
        "open",
        out=out,
        student=False,
        settings={
            **FAST,
            **SUMS,
            "tasks.first.kind": first,
            "tasks.second.kind": second,
            **{key.replace("__", "."): value for key, value in more.items()},
        },
    )


def test_its_tasks_make_a_filter_of_their_own_in_three_files(tmp_path, a_filter_in_no_time):
    """Ours of kinds ``frequencies`` and ``moments``, as an outsider would add them."""
    sources = {path.name for path in (PACKAGE / "outside").glob("sums_*.py")}
    assert sources == {"sums_settings.py", "sums_client.py", "sums_server.py"}
    theirs = made_of_sums(tmp_path / "theirs", "spread", "pairs", tasks__first__highest=5)
    ours = made_of_sums(tmp_path / "ours", "frequencies", "moments")
    filters = [fedlens.privatizer.load(run.path).network.state_dict() for run in (theirs, ours)]
    assert all(torch.equal(filters[0][name], filters[1][name]) for name in filters[1])
    assert theirs.summary.epsilon == ours.summary.epsilon and theirs.summary.rounds == 3
    assert theirs.summary.sensitive_read_nats == ours.summary.sensitive_read_nats
    assert "spread update" in theirs.directory.ledger.read_text()


def test_its_tasks_say_what_they_build_on(tmp_path):
    wanted = {**FAST, **SUMS, "tasks.first.kind": "frozen", "tasks.second.kind": "pairs"}
    with pytest.raises(fedlens.WrongUse, match=r"scales of freq.*: .* 'frequencies' or 'spread'"):
        fedlens.simulate("open", out=tmp_path / "run", settings=wanted)
    wanted = {key: value for key, value in wanted.items() if not key.startswith("privatizer.")}
    wanted["tasks.first.kind"] = "spread"
    with pytest.raises(fedlens.WrongUse, match=r"\[tasks.first\] and .* belong together"):
        fedlens.simulate("open", out=tmp_path / "run", settings=wanted)


def test_its_exporter_writes_labels(run):
    with open_store(run.store) as store:
        project = store.create_project(ProjectRecord(name="stripes", run_id=run.id, labels=LABELS))
        label = store.labels(project)[0]
        sample = store.samples(SampleFilter(run_id=run.id, purpose="curated"))[0]
        user = store.ensure_user("ann")
        store.annotate(
            Annotation(
                client_uuid="one",
                project_id=project,
                sample_id=sample.sample_id,
                user_id=user,
                label_id=label.label_id,
            )
        )
        content = EXPORTERS["lines"].export(store.labelled_samples(project))
    assert json.loads(content) == {"sample": sample.sample_id, "label": "stands"}


def test_its_page_is_in_the_dashboard(run, monkeypatch):
    monkeypatch.setenv(STORE_VARIABLE, run.store)
    monkeypatch.setenv(USER_VARIABLE, "tester")
    app = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=30)
    app._page_hash = calc_hash("hello")
    app.run()
    assert not app.exception and app.title[0].value == "Hello from outside"


def test_its_attacker_has_a_place_on_a_curve(tmp_path):
    plan = CurvePlan(
        method="information",
        data="mixture:0.4",
        out=tmp_path,
        seeds=(0,),
        points=("0.5",),
        attackers=("guesser",),
        quick=True,
        data_dir=None,
    )
    curve = run_curve(plan, lambda _: None)
    (point,) = curve.rows()
    assert 0 <= point["sensitive"]["guesser"]["mean"] <= 1


def test_its_records_feed_a_store_a_simulation_and_filters(tmp_path: Path) -> None:
    for number in range(60):
        ink, label = ("pen", "brush")[number % 2], ("line", "blot")[number % 3 == 0]
        row = "#" * 16 if label == "blot" else "." * 8 + "#" + "." * 7
        text = "\n".join([row] * 16)
        (tmp_path / f"p{number % 30}-{ink}.{label}.{ink}.{number}.drawing").write_text(text)
    (tmp_path / "z.line.pen.drawing").write_text("#\n##")
    contract = tmp_path / "federation.toml"
    contract.write_text(
        'name = "d"\nclasses = ["line", "blot"]\n[image]\nside = 16\ncolour = false\n'
    )
    report, faults = fedlens.check_node(tmp_path, contract)
    assert report.records == 60 and report.users == 30 and len(faults) == 1
    data = load(f"drawings:{tmp_path}")
    assert data.shape == (1, 16, 16) and data.user_ids is not None
    split = load_private(f"drawings:{tmp_path},sensitive=ink")
    assert split.train.sensitive_names == ("brush", "pen")
