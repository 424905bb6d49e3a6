"""Each round's noised release, kept beside the public state that it was asked with.

A release is public once it is noised, and all that is made of it later is post-processing: a
diagnosis reads what lies here and costs no privacy. Nothing here is needed to go on with a run.

``releases/round-N.safetensors`` holds the release and the weights that nodes were asked with. Of a
task's later rounds only the stretch of weights that changed is kept. Once `MOST_BYTES` are taken,
later rounds are not kept; those that nodes are sent no weights for, the warm-up's, always are.
Rounds of runs with a filter are not kept, for what they show has been through it; nor are those of
runs without noise, whose sums are no releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from fedlens.client.messages import Mechanism, TrainRequest, Vector
from fedlens.foundation.errors import FedlensError
from fedlens.models.shapes import ImageShape
from fedlens.server.config.mechanism import mechanism, release_deviation
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation
from fedlens.server.round.observer import RunObserver
from fedlens.server.round.sealed import RoundRelease
from fedlens.server.run.directory import RunDirectory
from fedlens.server.tasks.protocol import TaskRequest

FOLDER = "releases"
MOST_BYTES = 64 * 2**20
_RELEASE, _WEIGHTS, _FILES = "release", "weights/", "round-*.safetensors"


class ReleaseArchiveError(FedlensError, ValueError):
    """A kept release that cannot be read."""


@dataclass(frozen=True)
class ArchivedRelease:
    """A round's release and what nodes were asked."""

    task: str
    """The task's name in the schedule."""
    release: NDArray[np.float64]
    """[P], the noised mean."""
    deviation: float
    """Standard deviation of the noise in each coordinate of ``release``."""
    request: TrainRequest
    """Without users, seed and key: nothing of who was drawn is kept."""
    shape: ImageShape
    classes: int


class ReleaseArchive(RunObserver):
    """Keeps the rounds' releases of one run in its folder, as long as there is room."""

    def __init__(self, directory: RunDirectory, config: Config, federation: Federation) -> None:
        self._directory, self._config, self._federation = directory, config, federation
        self._taken: int | None = None
        """Bytes that what is kept takes: counted once, for every round adds to it here alone."""

    def take_release(
        self, task: ScheduledTask, number: int, request: TaskRequest, release: RoundRelease
    ) -> None:
        """Keep a round's release, where there is room for it."""
        config = self._config
        if request.filter is not None or config.privacy.unit != "user" or not config.noised:
            return
        folder = self._directory.path
        arrays: dict[str, NDArray[Any]] = {_RELEASE: release.values.astype(np.float32)}
        facts = _facts(config, self._federation, task, request, number)
        first = _first_weights(folder, task.first) if number > task.first else {}
        for name, vector in request.weights.items():
            arrays[f"{_WEIGHTS}{name}"], facts["changed"][name] = _changed(vector, first, name)
        if self._taken is None:
            self._taken = sum(path.stat().st_size for path in (folder / FOLDER).glob(_FILES))
        needed = sum(array.nbytes for array in arrays.values())
        if request.weights and self._taken + needed > MOST_BYTES:
            return
        content = save(arrays, metadata={"facts": json.dumps(facts)})
        self._directory.save_beside(FOLDER, _path(folder, number).name, content)
        self._taken += len(content)


def _facts(
    config: Config, federation: Federation, task: ScheduledTask, request: TaskRequest, number: int
) -> dict[str, Any]:
    by_class = config.data.partly_labelled and task.settings.reads_labels
    return {
        "round": number,
        "task": task.name,
        "kind": task.settings.kind,
        "settings": request.settings.model_dump(),
        "mechanism": mechanism(config, task.settings).model_dump(),
        "deviation": release_deviation(config, task.settings),
        "records_per_user": config.data.records_per_user,
        "shape": list(federation.shape),
        "classes": federation.classes if by_class else federation.drawn_classes,
        "changed": {},
    }


def _changed(vector: Vector, first: dict[str, Vector], name: str) -> tuple[Vector, int]:
    """The stretch in which weights differ from those of the task's first round, and its beginning.

    All of them where that round was not kept, or is this one.
    """
    if len(first.get(name, vector[:0])) != len(vector):
        return np.ascontiguousarray(vector), 0
    places = np.flatnonzero(first[name] != vector)
    begin, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    return np.ascontiguousarray(vector[begin:end]), begin


def _first_weights(folder: Path, number: int) -> dict[str, Vector]:
    path = _path(folder, number)
    if not path.exists():
        return {}
    with _undamaged(path):
        return {
            name.removeprefix(_WEIGHTS): array
            for name, array in load_file(path).items()
            if name.startswith(_WEIGHTS)
        }


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise ReleaseArchiveError(f"{path} is damaged; restore it from a backup") from None


def _path(folder: Path, number: int) -> Path:
    return folder / FOLDER / f"round-{number:06d}.safetensors"


def load_releases(folder: Path) -> list[ArchivedRelease]:
    """What a run has kept, in the order of its rounds.

    Raises:
        ReleaseArchiveError: a file was damaged.
    """
    first: dict[str, Mapping[str, Vector]] = {}
    found = []
    for path in sorted((folder / FOLDER).glob(_FILES)):
        with _undamaged(path):
            found.append(_read(path, first))
    return found


def _read(path: Path, first: dict[str, Mapping[str, Vector]]) -> ArchivedRelease:
    arrays = load_file(path)
    with safe_open(path, framework="numpy") as file:
        facts = json.loads(file.metadata()["facts"])
    task = str(facts["task"])
    stretches = {
        name: (int(begin), arrays[f"{_WEIGHTS}{name}"]) for name, begin in facts["changed"].items()
    }
    if task not in first:
        first[task] = {name: stretch for name, (_, stretch) in stretches.items()}
        stretches = {name: (0, stretch) for name, stretch in first[task].items()}
    weights = _Weights(first[task], stretches)
    channels, height, width = facts["shape"]
    request = TrainRequest(
        round=int(facts["round"]),
        users=(),
        enrolled=0,
        kind=str(facts["kind"]),
        mechanism=Mechanism.model_validate(facts["mechanism"]),
        settings=facts["settings"],
        weights=weights,
        seed=0,
        key=b"",
        records_per_user=int(facts["records_per_user"]),
    )
    release = arrays[_RELEASE].astype(np.float64)
    deviation, classes = float(facts["deviation"]), int(facts["classes"])
    return ArchivedRelease(task, release, deviation, request, (channels, height, width), classes)


class _Weights(Mapping[str, Vector]):
    """A round's weights: stretches of its own, the rest being that of the task's first kept round.

    Each is made whole when it is asked for: a hundred rounds of one task take no more memory than
    one.
    """

    def __init__(
        self, first: Mapping[str, Vector], stretches: Mapping[str, tuple[int, Vector]]
    ) -> None:
        for name, (begin, stretch) in stretches.items():
            if not 0 <= begin <= len(first[name]) - len(stretch):
                raise ValueError(f"weights {name!r} have no such stretch")
        self._first, self._stretches = first, stretches

    def __getitem__(self, name: str) -> Vector:
        begin, stretch = self._stretches[name]
        if self._first[name] is stretch:
            return stretch
        whole = self._first[name].copy()
        whole[begin : begin + len(stretch)] = stretch
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._stretches)

    def __len__(self) -> int:
        return len(self._stretches)
