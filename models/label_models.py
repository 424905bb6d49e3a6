"""Label models: classifiers that people's labels of samples taught, as a file.

Such a file is public: all of it was learned from releases and from what people saw in them. Who has
it can name records of their own, where these are, and nobody else learns the names.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedlens.foundation.errors import FedlensError
from fedlens.models.shapes import ImageShape, from_pixels
from fedlens.models.students import Student, build_student
from fedlens.models.weights import load_vector, to_vector

FORMAT = "fedlens-label-model-1"
MOST_BYTES = 256 * 2**20
MOST_NAMES, LONGEST_NAME = 1000, 200
CHUNK = 500
"""Images that are named at once."""


class LabelModelError(FedlensError):
    """A file that is no label model, or one for other images; the message says the fix."""


@dataclass(frozen=True, eq=False)
class LabelModel:
    """A classifier with the names of its classes.

    Attributes:
        network: in evaluation mode; images [n, c, h, w] in [-1, 1] to logits [n, classes].
        class_names: one a class.
        architecture: of `fedlens.models.students.ARCHITECTURES`.
        origin: which run's samples it learned from and what these cost, as JSON.
        digest: SHA-256 (hex) of the file; empty of a model that is not kept yet.
    """

    network: Student
    class_names: tuple[str, ...]
    architecture: str
    origin: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of an image."""
        return self.network.shape

    @torch.no_grad()
    def name(self, images: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The likeliest class of each image uint8 [n, c, h, w], int64 [n], and its probability.

        An image's name depends on that image alone.

        Raises:
            LabelModelError: the images have another shape.
        """
        if tuple(images.shape[1:]) != tuple(self.shape):
            raise LabelModelError(
                f"the label model names images of shape {self.shape}, and these are "
                f"{tuple(images.shape[1:])}: take one that learned from samples of such data"
            )
        labels, sure = np.zeros(len(images), np.int64), np.zeros(len(images), np.float32)
        for start in range(0, len(images), CHUNK):
            some = slice(start, start + CHUNK)
            likely = torch.softmax(self.network(from_pixels(np.array(images[some]))), 1).max(1)
            labels[some], sure[some] = likely.indices.numpy(), likely.values.numpy()
        return labels, sure

    def to_bytes(self) -> bytes:
        """As `read_label_model` reads it back: an .npz of weights, and JSON for the rest."""
        facts = {
            "format": FORMAT,
            "classes": list(self.class_names),
            "shape": list(self.shape),
            "architecture": self.architecture,
            "origin": dict(self.origin),
        }
        text = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, weights=to_vector(self.network), facts=text)
        return file.getvalue()


def make_label_model(
    network: nn.Module, class_names: Sequence[str], architecture: str, origin: Mapping[str, Any]
) -> LabelModel:
    """A label model of a trained student of that architecture.

    Raises:
        TypeError: it is no student.
    """
    if not isinstance(network, Student):
        raise TypeError("only a student can be kept as a label model")
    return LabelModel(network.cpu().eval(), tuple(class_names), architecture, origin)


def read_label_model(path: Path | str) -> LabelModel:
    """The label model in a file.

    Raises:
        LabelModelError: it is missing, damaged or something else.
    """
    place = Path(path).expanduser()
    try:
        if place.stat().st_size > MOST_BYTES:
            raise LabelModelError(f"{place}: is over 256 MiB; name a file of `fedlens student`")
        content = place.read_bytes()
    except OSError as error:
        raise LabelModelError(
            f"{place}: cannot be read ({error.strerror}); name a file that `fedlens student RUN "
            "--project NAME --out FILE` wrote"
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _require_stored(archive)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            weights, facts = arrays["weights"], json.loads(arrays["facts"].tobytes())
        return _read(weights, facts, hashlib.sha256(content).hexdigest())
    except Exception:  # NumPy, zipfile and zlib raise many kinds on damaged files
        raise LabelModelError(
            f"{place}: is no label model; write one with `fedlens student RUN --project NAME --out "
            "FILE`"
        ) from None


def _require_stored(archive: zipfile.ZipFile) -> None:
    """Refuse what may grow when it is unpacked: arrays are stored as they are."""
    if any(one.compress_type != zipfile.ZIP_STORED for one in archive.infolist()):
        raise ValueError("compressed")


def _require_names(names: Sequence[str]) -> None:
    """A network is built for them, and people read them."""
    fit = all(len(name) <= LONGEST_NAME and name.isprintable() for name in names)
    if not (1 <= len(names) <= MOST_NAMES and len(set(names)) == len(names) and fit):
        raise ValueError("classes")


def _read(weights: NDArray[Any], facts: Mapping[str, Any], digest: str) -> LabelModel:
    channels, height, width = (int(side) for side in facts["shape"])
    names = tuple(str(name) for name in facts["classes"])
    if facts["format"] != FORMAT or not np.isfinite(weights).all():
        raise ValueError(facts["format"])
    _require_names(names)
    if not isinstance(facts["origin"], dict):
        raise TypeError("origin")
    network = build_student(facts["architecture"], (channels, height, width), len(names))
    load_vector(network, weights.astype(np.float32))
    network.eval().requires_grad_(False)
    return LabelModel(network, names, str(facts["architecture"]), facts["origin"], digest)
