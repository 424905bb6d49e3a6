"""The annotator that a run has released, as it labels samples: for questions to nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedlens.client.messages import Vector
from fedlens.models.annotators import Annotator
from fedlens.models.shapes import ImageShape
from fedlens.models.vectors import load_vector, to_vector
from fedlens.server.config.section import ConfigError
from fedlens.server.config.tasks import AnnotatorConfig
from fedlens.server.run.arrays import within
from fedlens.server.run.directory import RunDirectory


@dataclass(frozen=True, eq=False)
class ReleasedAnnotator:
    """A network that knows the classes: what a run's noised releases taught it."""

    settings: AnnotatorConfig
    vector: Vector
    """All of its state, float32 [n]."""


def released_annotator(
    setting: str, named: str, shape: ImageShape, classes: int
) -> ReleasedAnnotator:
    """The annotator of a run for images of a shape and so many classes.

    Args:
        setting: key of the setting that names the run, for messages.
        named: the run's folder.
        shape: channels, height, width of the images that it is to name.
        classes: their number of classes.

    Raises:
        ConfigError: there is none there, or it is for other images or classes.
        RunDirectoryError: there is no run there, or it was damaged.
    """
    directory = RunDirectory.open(Path(named))
    snapshot, config = directory.load_state(), directory.config()
    names = [n for n, task in config.tasks.items() if isinstance(task, AnnotatorConfig)]
    settings = config.annotator
    if snapshot is None or not names or settings is None:
        raise ConfigError(f"{setting} = {named!r}: that run has no annotator, name another")
    theirs = tuple(snapshot.facts["shape"])
    if (theirs, snapshot.facts["classes"]) != (tuple(shape), classes):
        raise ConfigError(
            f"{setting} = {named!r}: that run has {snapshot.facts['classes']} classes of "
            f"images {theirs}, this one {classes} of {tuple(shape)}: name another"
        )
    state = within(f"tasks/{names[0]}", snapshot.arrays)
    if not bool(state["begun"]) or not int(state["applied"]):
        raise ConfigError(f"{setting} = {named!r}: its annotator has learned nothing yet")
    network = Annotator(shape, classes, settings.components, settings.features)
    load_vector(network, state["iterate"].astype(np.float32))
    network.weight.copy_(torch.from_numpy(state["mean"].astype(np.float32)))
    return ReleasedAnnotator(settings, to_vector(network))
