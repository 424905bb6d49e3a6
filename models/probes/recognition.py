"""Questions to a network that knows the classes: a private annotator that was released, or public.

A sum over users is noised by what it may move, not by what the network is like, so a weak network
makes an answer less telling and never less private.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from fedlens.models.annotators import Annotator
from fedlens.models.probes.protocol import Argument, Probe, ProbedRecords

FARTHEST = 4.0
"""Nats beyond which a single record counts no more in a user's vote."""


def _log_probabilities(annotator: Annotator | None, images: Tensor) -> Tensor:
    if annotator is None:
        raise ValueError("the probe needs a network that knows the classes")
    scores = annotator(images.to(annotator.weight.device))
    return F.log_softmax(scores, 1).to(images.device)


def _of(logarithms: Tensor, labels: Tensor) -> Tensor:
    return logarithms.gather(1, labels[:, None])[:, 0]


def better_after(records: ProbedRecords, argument: Argument) -> Tensor:
    """By how many nats a record's own label is likelier once the record is transformed."""
    if argument.fault is None:
        raise ValueError("the probe needs a transformation")
    setting = argument.fault.setting(records.classes, 0)
    images, labels = argument.fault.fault.applied(records.images, records.labels, setting)
    before = _of(_log_probabilities(records.annotator, records.images), records.labels)
    return _of(_log_probabilities(records.annotator, images), labels) - before


def confidence(records: ProbedRecords, _: Argument) -> Tensor:
    """The network's probability of the record's own label."""
    return _of(_log_probabilities(records.annotator, records.images), records.labels).exp()


def recognised(records: ProbedRecords, _: Argument) -> Tensor:
    """1 where the network finds the record's label likeliest, else 0."""
    found = _log_probabilities(records.annotator, records.images).argmax(1)
    return (found == records.labels).float()


BETTER_AFTER = Probe(
    "better_after",
    "share of users whose records are recognised better once they are: {}",
    better_after,
    -FARTHEST,
    FARTHEST,
    user="vote",
    takes="transformation",
    needs_model=True,
)
CONFIDENCE = Probe(
    "confidence", "probability that the network gives labels", confidence, 0, 1, needs_model=True
)
RECOGNISED = Probe(
    "recognised", "share of records that the network names", recognised, 0, 1, needs_model=True
)
