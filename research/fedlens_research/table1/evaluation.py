"""How much is trained and drawn to measure a trial: the same for every trial of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedlens.data.registry import spec_of


@dataclass(frozen=True)
class EvaluationBudget:
    """Sizes of everything that is measured."""

    images: int = 120_000
    """Images that a taught student, and a student of requested classes, trains on."""
    epochs: Mapping[str, int] = field(default_factory=lambda: {"cnn": 4, "mlp": 4, "residual": 2})
    """Passes over them, by architecture; the residual student needs fewer and costs more."""
    judged: int = 10_000  # Samples that networks trained on real images judge
    labels: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    """Numbers of labelled samples of the label curve."""
    repeated: int = 20_000
    """Changed copies of the labelled samples that a student of the curve trains on."""
    recogniser_epochs: int = 8
    orientation_epochs: int = 2
    sheet: int = 8  # Samples of a class on a contact sheet

    def on(self, data: str) -> EvaluationBudget:
        """What is spent on a data set."""
        return replace(self, images=self.images * spec_of(data).student_images)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "labels": list(self.labels), "epochs": dict(self.epochs)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> EvaluationBudget:
        """What `to_json` gave."""
        return cls(**{**found, "labels": tuple(found["labels"])})


FULL = EvaluationBudget()


def quick() -> EvaluationBudget:
    """What ``--quick`` spends: a quarter of the students' images, a label curve of fewer points.

    The network that recognises samples takes half as many passes.
    """
    # the largest number of labels stays: how many samples are guessed at hangs on it
    return replace(
        FULL,
        images=FULL.images // 4,
        labels=FULL.labels[::-2][::-1],
        recogniser_epochs=FULL.recogniser_epochs // 2,
    )


def serving(wanted: Mapping[str, Any], data: str) -> list[Mapping[str, Any]]:
    """Budgets, as JSON, whose figures serve for ``wanted``: for the quick one the full, too."""
    full = FULL.on(data).to_json()
    return [wanted, full] if wanted == quick().on(data).to_json() else [wanted]
