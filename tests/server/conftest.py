"""A small federation: forty users of five embedded images each, on two nodes in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_tasks import ANNOTATED, SMALL, planned

from fedlens.privatizers import fitting
from fedlens.server.config.tree import Config
from fedlens.server.generation import fitting as privatizer_fit
from fedlens.server.generation import moments_fit
from fedlens.server.learning import learner
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import Outcome, train
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid


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
    for fit in (privatizer_fit, moments_fit):
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
