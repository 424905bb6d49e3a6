"""A small federation: forty users of five embedded images each, on two nodes in this process."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import outside_task
import pytest
import torch
from run_tasks import ANNOTATED, SMALL, planned

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.foundation import registry
from fedlens.privatizers import fitting
from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.config.tree import Config
from fedlens.server.generation import fitting as privatizer_fit
from fedlens.server.learning import learner
from fedlens.server.run.directory import RunDirectory
from fedlens.server.tasks import moments
from fedlens.server.training import Outcome, train
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid


@pytest.fixture(scope="package", autouse=True)
def null_task():
    """The kind ``null``, which most of these runs train, as if a package brought it."""
    TASK_KINDS._loaded["null"] = outside_task.NULL
    CLIENT_TASKS._loaded["null"] = outside_task.NullLocalTask
    yield
    del TASK_KINDS._loaded["null"], CLIENT_TASKS._loaded["null"]


@pytest.fixture
def small_config():
    """The small federation's configuration, with changes."""

    def make(**changes: object) -> Config:
        settings = {key.replace("__", "."): value for key, value in changes.items()}
        return Config().updated(planned({**SMALL, **settings}))

    return make


@pytest.fixture
def run_small(tmp_path):
    """Train a configuration in ``tmp_path / name``, or go on with it there."""

    def run(config: Config, name: str = "run", app=client_app, **more) -> Outcome:
        path: Path = tmp_path / name
        known = RunDirectory(path)
        directory = known if known.exists() else RunDirectory.create(path, config)
        grid = InProcessGrid(app, config.data.nodes, config.flat())
        return train(config, directory, grid, **more)

    return run


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Runs that were trained to their end, by all that they depend on; each is trained once."""
    return tmp_path_factory.mktemp("corpus"), {}


@pytest.fixture
def finished(corpus, run_small, tmp_path):
    """A copy of a finished run of a configuration, in ``tmp_path / name``.

    For tests that begin where a run has ended, and change nothing of how it is trained.
    """
    place, known = corpus

    def take(config: Config, name: str = "run") -> Outcome:
        patched = (learner.FRAME_IMAGES, privatizer_fit.SAMPLES, fitting.FIRST)
        key = repr((config.to_toml(), patched))
        if key not in known:
            outcome = run_small(config, name)
            known[key] = shutil.copytree(tmp_path / name, place / str(len(known))), outcome
            return outcome
        folder, outcome = known[key]
        shutil.copytree(folder, tmp_path / name)
        return replace(outcome, store=RunDirectory(tmp_path / name).default_store)

    return take


@pytest.fixture(scope="session")
def known_axes():
    """Principal axes by the bytes of the matrix: equal generators have equal frames."""
    return {}


@pytest.fixture
def few_images_for_the_frame(monkeypatch, known_axes):
    """A frame that takes a second at most, and none where it is the frame of an earlier run."""
    eigh = torch.linalg.eigh

    def remembered(matrix):
        key = matrix.numpy().tobytes()
        if key not in known_axes:
            known_axes[key] = eigh(matrix)
        return known_axes[key]

    monkeypatch.setattr(torch.linalg, "eigh", remembered)
    monkeypatch.setattr(learner, "FRAME_IMAGES", 40)


@pytest.fixture
def a_filter_in_no_time(monkeypatch):
    """A filter of samples, or of sums, that hardly learns."""
    for fit in (privatizer_fit, moments):
        monkeypatch.setattr(fit, "SAMPLES", 200)
        monkeypatch.setattr(fit, "HELD", 100)
        for name in ("READING_STEPS", "SERVING_STEPS"):
            monkeypatch.setattr(fit, name, 2)
    for name in ("FIRST", "LATER"):
        monkeypatch.setattr(fitting, name, replace(getattr(fitting, name), meeting=2))


@pytest.fixture
def annotated(small_config, few_images_for_the_frame):
    """The configuration of a small run with an annotator, with changes."""

    def make(*more: dict[str, object], **changes: object) -> Config:
        settings = {"tasks.critic.kind": "frozen", **ANNOTATED}
        for tables in more:
            settings |= tables
        settings |= {key.replace("__", "."): value for key, value in changes.items()}
        return small_config(**{key.replace(".", "__"): v for key, v in settings.items()})

    return make


@pytest.fixture
def installed(monkeypatch):
    """Have packages installed that bring these entry points."""
    for kinds in (TASK_KINDS, CLIENT_TASKS):
        monkeypatch.setattr(kinds, "_loaded", dict(kinds._loaded))

    def install(*points: EntryPoint) -> None:
        monkeypatch.setattr(
            registry, "installed", lambda group: tuple(p for p in points if p.group == group)
        )

    return install
