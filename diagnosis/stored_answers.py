"""Diagnoses that are kept in a run's folder: by the command that made them, for the dashboard.

``RUN/diagnosis/KEY.json`` holds one answer; the key changes whenever the answer may. Nothing in it
is anything but post-processing of what the run has released.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "diagnosis"
FORMAT = "fedlens-diagnosis-1"
LEDGER, RELEASES = "ledger.jsonl", "releases"
PUBLIC = ("mnist", "fashion-mnist", "embedded")
PUBLIC_BY_PATH = (
    "emnist", "femnist", "cifar10", "cifar100", "svhn", "celeba", "medmnist", "stand-in",
)  # fmt: skip
"""What pages know of `DatasetSpec.public`, which they cannot ask without loading a training
framework: our data sets, those apart whose name is followed by a path. A test holds them to it."""
SAMPLES_EACH, MOST_PICTURED = 6, 6
"""Samples of a class that faults may be shown on, and how many are shown of a fault."""


@dataclass(frozen=True)
class KeptAnswer:
    """What a file holds."""

    reference: str
    """As it was asked for; empty for the test images of the run's own data."""
    diagnosis: Any
    """The command's JSON object."""
    looks: Any
    """By fault: samples before and after it, as base64 PNGs with their labels."""


def is_public(data: str) -> bool:
    """Whether pages know that the test images of a data set are anybody's to look at.

    Those of data that somebody brought are records of people, in no run's ledger: what is computed
    from them is no post-processing, and must not be kept beside what is.
    """
    return data.partition(":")[0] in (*PUBLIC, *PUBLIC_BY_PATH)


def releases_of(run: Path) -> list[Path]:
    """The released sums that a run's folder keeps, in the order of its rounds."""
    return sorted((run / RELEASES).glob("round-*.safetensors"))


def run_id_in(folder: Path) -> str | None:
    """The run's id in the first line of its ledger; ``None`` where there is no ledger."""
    try:
        with (folder / LEDGER).open(encoding="utf-8") as file:
            header = json.loads(file.readline())["header"]
        return str(header["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def key_of(run: Path, run_id: str, reference: str = "") -> str:
    """Changes with the reference, and with the releases of the run and of a run it is held against.

    Args:
        run: the run's folder.
        run_id: its id.
        reference: name of a public data set, or an earlier run's folder, by whatever path; empty
            for the run's own data.
    """
    earlier = run_id_in(Path(reference)) if reference else None
    named = reference if earlier is None else f"run {earlier}"
    said = [named, run_id, *_sizes(run)]
    if earlier is not None:
        said += _sizes(Path(reference))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:20]


def _sizes(run: Path) -> list[str]:
    return [f"{path.name} {path.stat().st_size}" for path in releases_of(run)]


def kept_at(run: Path, run_id: str, reference: str = "") -> Path:
    """The file of an answer, there or not; arguments as `key_of`."""
    return run / FOLDER / f"{key_of(run, run_id, reference)}.json"


def keep_answer(path: Path, answer: KeptAnswer) -> bool:
    """Write an answer, whole or not at all; whether its folder could be written to."""
    content: Mapping[str, Any] = {
        "format": FORMAT,
        "reference": answer.reference,
        "diagnosis": answer.diagnosis,
        "looks": answer.looks,
    }
    try:
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content), encoding="utf-8")
        part.replace(path)
    except OSError:
        return False
    return True


def read_kept(path: Path) -> KeptAnswer | None:
    """The answer in a file; ``None`` where it is absent, damaged or of another version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            return None
        return KeptAnswer(content["reference"], content["diagnosis"], content["looks"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
