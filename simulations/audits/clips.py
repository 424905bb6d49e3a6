"""Is what arrives bounded? Canaries alone, real updates that are too long, and a hostile node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import RecordDict

from fedlens.accountant.events import LEAST_NOISE
from fedlens.client.messages import TrainReply
from fedlens.server.round import masked_sum, step
from fedlens.server.round.step import NoUsableReply
from fedlens.simulations.audits.canaries import OVERLONG, Canaries
from fedlens.simulations.audits.made_up import made_up_images, made_up_labels
from fedlens.simulations.audits.records import SMALL_CLIP, silent_hosts, with_records
from fedlens.simulations.audits.stage import SHAPE, AuditedTask, AuditStage, Floats

RECORDS = 3
_EXCESS = 1e3
"""Times the largest norm that a hostile node's sum may have."""


@dataclass(frozen=True)
class ClipProbe:
    """Norms are over the bound that holds for them."""

    sent: float | None
    """Norm of a canary's update, ten times too long, as it arrives; None in record mode."""
    cosine: float | None
    """Between what arrived and what was sent."""
    counted: float | None
    """Norm of the histogram of norms that a canary alone is in; None where none is released."""
    computed: float
    """Norm of what the task makes of made-up records, at a clip that all of it is longer than."""
    blocks: tuple[tuple[str, float], ...]
    """Norm of each of that one's blocks that has a bound of its own, by name."""
    taken: tuple[str, ...]
    """Which replies of a hostile node the server took."""
    refused: int
    """Replies of honest nodes that the server refused."""


def clip_probe(audited: AuditedTask, source: np.random.Generator) -> ClipProbe:
    """One unit alone, drawn for sure, next to no noise."""
    sent, cosine, counted, refused = None, None, None, 0
    if not audited.schedule.record_mode:
        sent, cosine, counted, refused = _sent(audited, source)
    arrived, also = _computed(audited, source)
    return ClipProbe(
        sent,
        cosine,
        counted,
        float(np.linalg.norm(arrived)),
        tuple(_blocks(audited, arrived)),
        tuple(_taken(audited)),
        refused + also,
    )


def _quiet(audited: AuditedTask, **numbers: float) -> AuditedTask:
    return audited.with_mechanism(sampling_rate=1.0, noise_multiplier=LEAST_NOISE, **numbers)


def _sent(
    audited: AuditedTask, source: np.random.Generator
) -> tuple[float, float, float | None, int]:
    """A canary user alone: norm and cosine of what arrives, norm of its histogram, refusals."""
    canary = Canaries(audited, 1, source, norm=OVERLONG)
    stage = canary.stage(np.ones(1, dtype=np.bool_), _quiet(audited))
    found, refused = stage.released(audited.schedule.task.first)
    norm = float(np.linalg.norm(found))
    cosine = float(found @ canary.units()[0]) / norm if norm else 0.0
    counted = None if stage.norms is None else float(np.linalg.norm(stage.norms))
    return norm, cosine, counted, refused


def _computed(audited: AuditedTask, source: np.random.Generator) -> tuple[Floats, int]:
    """The task's own update: a user's, or one record's in record mode."""
    clip = min(audited.schedule.event.clipping_norm, SMALL_CLIP)
    small, records = _quiet(audited.stepping(1), clipping_norm=clip), RECORDS
    if audited.schedule.record_mode:
        records = 1
    images = made_up_images(1, records, SHAPE, source)[0]
    labels = made_up_labels(1, records, audited.classes, source)[0]
    stage = AuditStage(small, [with_records(audited, images, labels)])
    return stage.released(audited.schedule.task.first)


def _blocks(audited: AuditedTask, arrived: Floats) -> list[tuple[str, float]]:
    """Norms of blocks over their bounds, where the task bounds blocks by themselves."""
    bounds = getattr(audited.state, "block_bounds", None)
    if bounds is None:
        return []
    found, start = [], 0
    for name, size, bound in bounds():
        found.append((name, float(np.linalg.norm(arrived[start : start + size])) / bound))
        start += size
    return found


# A hostile node


def _longer(total: Floats, length: float) -> Floats:
    return np.full(total.shape, length / np.sqrt(total.size))


Reply = Callable[[Floats, float], Floats]
HOSTILE: dict[str, Reply] = {
    "far too long": lambda total, most: _longer(total, _EXCESS * most),
    "not finite": lambda total, most: np.full(total.shape, np.nan),
    "infinite": lambda total, most: np.full(total.shape, np.inf),
    "of another shape": lambda total, most: np.zeros(total.size + 1),
}
"""What a hostile node makes of its sum, given the largest norm that the server is to take."""


def _taken(audited: AuditedTask) -> list[str]:
    """Which lies of a hostile node the server takes."""
    if not audited.schedule.config.aggregation.secure:
        return [name for name, reply in HOSTILE.items() if _is_taken(audited, reply)]
    everybody, found = audited.with_mechanism(sampling_rate=1.0), []
    names = AuditStage(everybody, silent_hosts(audited, 2)).lies()
    for name in names:
        stage = AuditStage(everybody, silent_hosts(audited, 2))
        stage.grid.hostile = stage.lies()[name]
        with _expected_warnings():
            found += [] if stage.released(audited.schedule.task.first)[1] else [name]
    return found


def _is_taken(audited: AuditedTask, reply: Reply) -> bool:
    """Whether a hostile node's reply changes a sum; the other node's users hold nothing."""
    everybody = audited.with_mechanism(sampling_rate=1.0)
    largest = audited.state.largest_reply if audited.schedule.record_mode else np.inf
    stage = AuditStage(everybody, silent_hosts(audited, 2), largest_reply=largest)
    clip = audited.schedule.event.clipping_norm
    most = largest if np.isfinite(largest) else clip

    def hostile(content: RecordDict) -> RecordDict:
        honest = TrainReply.from_record(content)
        return replace(honest, total=reply(honest.total, most)).to_record()

    stage.grid.hostile = hostile
    try:
        with _expected_warnings():
            aggregate = stage.gathered(audited.schedule.task.first)
    except NoUsableReply:
        return False
    except Exception:  # a server that falls over its nodes' replies has taken them
        return True
    return not aggregate.refused


@contextmanager
def _expected_warnings() -> Iterator[None]:
    """The server says which replies it refuses: here that is what is wanted of it."""
    loggers = [step.logger, masked_sum.logger]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
