"""Agreement and results as rows of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedlens.foundation.unlabelled import UNLABELLED
from fedlens.store import AnnotatorRecord, GivenAnswer, RunRecord, StoredLabel
from fedlens.store.agreement import Agreement, alpha_with_interval, share_interval
from fedlens.store.reviews import label_counts, pairwise_kappas


def overall_agreement(answers: list[GivenAnswer], labels: Sequence[StoredLabel]) -> Agreement:
    """Krippendorff's alpha over all labels."""
    return alpha_with_interval(label_counts(answers, [one.label_id for one in labels]))


def label_rows(
    answers: list[GivenAnswer], labels: Sequence[StoredLabel]
) -> list[dict[str, object]]:
    """Alpha of each label against all others, with its interval."""
    counts = label_counts(answers, [one.label_id for one in labels])
    rows = []
    for column, label in enumerate(labels):
        given = counts[:, column]
        found = alpha_with_interval(np.stack([given, counts.sum(1) - given], axis=1))
        rows.append(
            {"Label": label.name, "Given": int(given.sum()), "Alpha": describe_agreement(found)}
        )
    return rows


def pair_rows(
    answers: list[GivenAnswer], labels: Sequence[StoredLabel], names: Mapping[int, str]
) -> list[dict[str, object]]:
    """Cohen's kappa of each two annotators."""
    found = pairwise_kappas(answers, [one.label_id for one in labels])
    return [
        {
            "Annotator": names[first],
            "and": names[second],
            "Samples of both": shared,
            "Kappa": "–" if math.isnan(kappa) else f"{kappa:.2f}",
        }
        for (first, second), (kappa, shared) in found.items()
    ]


def annotator_rows(records: Sequence[AnnotatorRecord]) -> list[dict[str, object]]:
    """What each annotator has done."""
    return [
        {
            "Annotator": one.name,
            "Answers": one.answers,
            "Median seconds": one.median_seconds,
            "Gold right": f"{one.gold_right} of {one.gold_seen}" if one.gold_seen else "–",
        }
        for one in records
    ]


Counts = Mapping[tuple[int | None, int | None], int]
"""Samples by requested class (None: unlabelled) and by the label that they count as."""


def title_of(counts: Counts) -> str:
    """What the table of `class_table` is called."""
    labelled = any(requested is not None for requested, _ in counts)
    return "Label by requested class" if labelled else "Labels of unlabelled samples"


@dataclass(frozen=True)
class ClassTable:
    """How many samples of each requested class, or of unlabelled ones, count as each label."""

    requested: list[int | None]
    """Of each row."""
    labels: list[int | None]
    """Of each column; ``None`` for no label."""
    names: list[str]
    """Of the columns."""
    counts: list[list[int]]
    rows: list[str]
    """What each row is called."""
    expected: list[int]
    """Of each row the column of its own class, by name; -1 where there is none."""


def class_table(counts: Counts, labels: Sequence[StoredLabel], run: RunRecord) -> ClassTable:
    """The counts as a table, unlabelled samples first."""
    requested = sorted({one for one, _ in counts}, key=lambda one: -1 if one is None else one)
    columns: list[int | None] = [*(one.label_id for one in labels), None]
    called = dict(enumerate(run.class_names))
    place = {
        run.class_of_name(one.name): at for at, one in enumerate(labels) if one.kind == "class"
    }
    return ClassTable(
        requested,
        columns,
        [*(one.name for one in labels), "no label"],
        [[counts.get((row, column), 0) for column in columns] for row in requested],
        [UNLABELLED if one is None else called.get(one, str(one)) for one in requested],
        [-1 if one is None else place.get(one, -1) for one in requested],
    )


def count_share(
    counts: Counts, labels: Sequence[StoredLabel], kind: str
) -> tuple[int, int, float, float]:
    """Hits, samples with a label, and the interval of the share of labels of a kind."""
    wanted = {one.label_id for one in labels if one.kind == kind}
    hits = sum(count for (_, label), count in counts.items() if label in wanted)
    total = sum(count for (_, label), count in counts.items() if label is not None)
    return hits, total, *share_interval(hits, total)


def describe_agreement(found: Agreement) -> str:
    """A coefficient with its interval, or a dash where nothing can be said."""
    if math.isnan(found.value):
        return "–"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
