"""Evidence for a finding: a diagnosis as it was, probes that were asked beside the run, samples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from typing import Any

from fedlens.dashboard.faults.answer import (
    AnswerError,
    DiagnosedFault,
    DiagnosisAnswer,
    percent,
    read_answer,
)
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.samples.batches import is_intact
from fedlens.store import FindingEntry, Store, StoredSample, StoreError

PROBE_FILE = "probe.json"
WORDS = ("probe", "says")
FIGURES = (
    "value",
    "low",
    "high",
    "users",
    "epsilon",
    "delta",
    "bayesian_epsilon",
    "bayesian_delta",
    "together",
)
"""Of a probe's answer; its folder is left out, for a path says where somebody's files lie."""


def hypothesis_of(finding: DiagnosedFault) -> str:
    """A fault of a diagnosis as the sentence of a finding."""
    if finding.named:
        return f"{finding.says} in {percent(finding.share)} of users"
    return f"{finding.says} in about {percent(finding.share)} of users; most like {finding.like}"


def freeze_diagnosis(answer: DiagnosisAnswer, fault: str | None) -> dict[str, Any]:
    """A diagnosis as evidence; of its pictures those of one fault."""
    looks = {name: shown for name, shown in answer.looks.items() if name == fault}
    return {"diagnosis": answer.to_json(), "looks": looks}


def thaw_diagnosis(content: Mapping[str, Any]) -> DiagnosisAnswer | None:
    """The diagnosis of an entry; ``None`` for one of another version."""
    try:
        return read_answer(content["diagnosis"], content["looks"])
    except (AnswerError, KeyError):
        return None


def probes_of(place: RunPlace | None) -> list[dict[str, Any]]:
    """The answers of the probes beside a run, by number; those that cannot be read are left out."""
    if place is None:
        return []
    folders = place.path.absolute().parent.glob(f"{escape(place.name)}-probe-*")
    found = (_probe(folder / PROBE_FILE) for folder in sorted(folders, key=_number))
    return [one for one in found if one is not None]


def _number(folder: Any) -> tuple[int, str]:
    last = folder.name.rpartition("-")[2]
    return (int(last) if last.isdecimal() else 0, folder.name)


def _probe(path: Any) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        words = {name: str(said[name]) for name in WORDS}
        return words | {name: _finite(float(said[name])) for name in FIGURES}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class EvidenceSample:
    """A sample that was kept as evidence."""

    sample_id: int
    requested_class: int | None
    sha256: str
    sample: StoredSample | None
    """It; ``None`` where the store no longer has exactly these pixels."""


def samples_in(history: Sequence[FindingEntry], store: Store) -> list[EvidenceSample]:
    """The samples of a finding, each checked by the digest that was kept."""
    kept = [one for entry in history if entry.kind == "samples" for one in entry.content["samples"]]
    return [_shown(one, store) for one in kept]


def _shown(kept: Mapping[str, Any], store: Store) -> EvidenceSample:
    try:
        sample = store.sample(kept["sample_id"])
    except StoreError:
        sample = None
    if sample is not None and (sample.sha256 != kept["sha256"] or not is_intact(sample)):
        sample = None
    return EvidenceSample(kept["sample_id"], kept["requested_class"], kept["sha256"], sample)


def diagnoses_in(history: Sequence[FindingEntry]) -> list[tuple[FindingEntry, DiagnosisAnswer]]:
    """The diagnoses of a finding with when each was added, the first first.

    The first is what the finding was filed on: what is added later stands beside it, never in its
    place.
    """
    read = [(one, thaw_diagnosis(one.content)) for one in history if one.kind == "diagnosis"]
    return [(one, answer) for one, answer in read if answer is not None]
