"""What an exporter is given: answers with their samples, and what these cost whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fedlens.accountant.wording import shown


@dataclass(frozen=True, kw_only=True)
class LabelledSample:
    """One answer in force about one synthetic sample, with where the sample comes from."""

    sample_id: int
    run_id: str
    round: int
    requested_class: int | None
    """``None`` where the data have no labels."""
    provenance: str
    """The label shown beside the sample, in words."""
    sha256: str
    """Of its pixels."""
    png: bytes
    label: str | None
    """``None`` where the annotator skipped the sample."""
    kind: str | None
    """Of the label: ``class``, ``unknown`` or ``artefact``."""
    annotator: str
    created_at: datetime
    """When the answer was given."""
    more_labels: tuple[str, ...] = ()
    """Further labels of the same answer."""
    note: str | None = None
    """What the annotator wrote beside it."""
    lead_ms: int | None = None
    """Milliseconds from seeing the sample to answering."""
    final_label: str | None = None
    """What the sample counts as: a reviewer's decision, or else the majority's, if any."""
    gold_label: str | None = None
    """The right answer, where the sample is one of gold."""
    dp_epsilon: float = math.inf
    """Differential privacy spent when it was drawn, at ``delta_dp``; holds for anyone."""
    delta_dp: float = 0.0
    bayesian_epsilon: float = math.inf
    """Bayesian differential privacy, corrected, at ``delta_bayesian``: an estimate, for people like
    those enrolled."""
    delta_bayesian: float = 0.0
    guarantee: str = ""
    """What the run guarantees, to whom, in words."""


POST_PROCESSING = (
    "All images are synthetic. Drawing, labelling and exporting them is post-processing: it costs "
    "no privacy beyond these figures. The labels tell what annotators saw, not what any user holds."
)


def numbered(samples: Sequence[LabelledSample]) -> list[LabelledSample]:
    """The answers with numbers for annotators' names, in the order in which they answered first.

    For files that are made to be published: a name may be somebody's address, and labels say how
    somebody works.
    """
    names = dict.fromkeys(one.annotator for one in samples)
    known = {name: f"annotator {number}" for number, name in enumerate(names, start=1)}
    return [replace(one, annotator=known[one.annotator]) for one in samples]


def statements(samples: Sequence[LabelledSample]) -> str:
    """Both privacy statements of all runs that samples come from, as lines of Markdown."""
    lines = [POST_PROCESSING]
    seen = dict.fromkeys((one.run_id, one.guarantee) for one in samples)
    for run_id, guarantee in seen:
        ours = [one for one in samples if one.run_id == run_id]
        lines += [
            f"Run `{run_id}`:",
            f"- Differential privacy, for anyone: ε = {_most(o.dp_epsilon for o in ours)} at "
            f"δ = {shown(max(o.delta_dp for o in ours), 4)}.",
            "- Bayesian differential privacy, for people like those enrolled, an estimate: "
            f"ε = {_most(o.bayesian_epsilon for o in ours)} at "
            f"δ = {shown(max(o.delta_bayesian for o in ours), 4)}.",
            f"- In words: {guarantee}",
        ]
    return "\n".join(lines) + "\n"


def _most(values: Iterable[float]) -> str:
    largest = max(values)
    return "∞ (no bound)" if math.isinf(largest) else shown(largest, 4)
