"""Faults for audits to find: each is put into the real functions for the time of one audit.

A mutant of noise is a function of the noise that was drawn; where it is added, on the server or on
nodes, it goes in there. The others replace the clip, the draw, the sum or a check.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from fedlens.simulations.audits.schedule import Schedule
from harness import mutate_clips as clips
from harness import mutate_draws as draws
from harness import mutate_noise as noise
from harness import mutate_norms as norms

Fault = Callable[[Schedule], AbstractContextManager[None]]

USERS = (
    "frozen, user",
    "focused, user",
    "wgan, user",
    "annotator, user",
    "privatizer, user",
    "frequencies, user",
    "moments, user",
    "probe, user",
)
RECORDS = ("frozen, record", "focused, record", "wgan, record", "annotator, record")
ALL = (*USERS, *RECORDS)
BLOCKS = ("frozen, record", "focused, record")
DENSE = (*USERS, "wgan, record")
BY_CLASS = ("frozen, user", "focused, user", "annotator, user", "moments, user")


@dataclass(frozen=True)
class Mutant:
    """A fault, and where it is one."""

    name: str
    put_in: Fault
    subjects: tuple[str, ...]
    """Subjects of the suite that it is a fault of."""


def _same(fault: Callable[[], AbstractContextManager[None]]) -> Fault:
    """A fault that is the same whatever is audited."""
    return lambda schedule: fault()


def _noise(change: noise.Change) -> Fault:
    return lambda schedule: noise.changed(change)


def _norms(change: norms.Change) -> Fault:
    return lambda schedule: norms.noise_changed(change)


NOTHING = Mutant("none", _same(nullcontext), ALL)
MUTANTS = (
    Mutant("no clip of dense updates", _same(lambda: clips.clip_replaced(clips.unclipped)), DENSE),
    Mutant(
        "no clip of updates in blocks", _same(lambda: clips.clip_replaced(clips.unclipped)), BLOCKS
    ),
    Mutant(
        "no clip of outer products",
        _same(lambda: clips.clip_replaced(clips.unclipped)),
        ("annotator, record",),
    ),
    Mutant("no clip of a privatizer's blocks", _same(clips.no_block_clip), ("privatizer, user",)),
    Mutant("clip at 2C", _same(lambda: clips.clip_replaced(clips.doubled)), ALL),
    Mutant(
        "each class clipped, not the user",
        _same(lambda: clips.clip_replaced(clips.by_part)),
        BY_CLASS,
    ),
    Mutant(
        "sums clipped, not users or records",
        _same(lambda: clips.clip_replaced(clips.of_the_sum)),
        ALL,
    ),
    Mutant(
        "a user or record counted twice", _same(lambda: clips.clip_replaced(clips.first_twice)), ALL
    ),
    Mutant("no check of replies", _same(clips.no_check), ALL),
    Mutant("divided by who took part", _same(draws.realised_denominator), ALL),
    Mutant("no noise", _noise(lambda n, at: 0 * n), ALL),
    Mutant("noise / 3", _noise(lambda n, at: n / 3), ALL),
    Mutant("noise x 0.9", _noise(lambda n, at: 0.9 * n), ALL),
    Mutant("record mode: z halved on nodes", _noise(lambda n, at: n / 2), RECORDS),
    Mutant("no noise in 1 of 1,000 coordinates", lambda s: noise.changed(noise.missing(1000)), ALL),
    Mutant("no noise in one block", lambda s: noise.changed(noise.without_a_block()), ALL),
    Mutant("half the noise in every 7th coordinate", _noise(noise.striped), ALL),
    Mutant("same noise in each round", lambda s: noise.changed(noise.kept_by("node", "step")), ALL),
    Mutant(
        "same noise on each node",
        lambda s: noise.changed(noise.kept_by("round", "step", afresh=True)),
        RECORDS,
    ),
    Mutant(
        "same noise in each local step",
        lambda s: noise.changed(noise.kept_by("round", "node", afresh=True)),
        ("wgan, record",),
    ),
    Mutant("noise of a fixed seed", _same(noise.fixed_seed), ALL),
    Mutant(
        "same noise for each task",
        lambda s: noise.changed(noise.shared()),
        ("two tasks, user", "two tasks, record"),
    ),
    Mutant("noise before the clip", _same(noise.before_the_clip), ALL),
    Mutant("no noise in the last round", lambda s: noise.changed(noise.not_in(s.task.last)), ALL),
    Mutant("noise of the right variance, uniform", _noise(noise.uniform), ALL),
    Mutant("noise smoothed over neighbours", _noise(noise.smoothed), ALL),
    Mutant("norms released without noise", _norms(lambda n: 0 * n), USERS),
    Mutant("noise of norms / 3", _norms(lambda n: n / 3), USERS),
    Mutant("no noise in one bin of norms", _norms(norms.none_in_the_last_bin), USERS),
    Mutant(
        "same noise of norms in each round",
        lambda s: norms.noise_changed(norms.first_kept()),
        USERS,
    ),
    Mutant("one noise for norms and sum", _same(norms.shared_with_the_sum), USERS),
    Mutant("norms counted twice", _same(norms.counted_twice), USERS),
    Mutant("norms not paid for", _same(norms.unpaid), USERS),
    Mutant("everybody always drawn", lambda s: draws.drawn_by(draws.everybody), ALL),
    Mutant("one always drawn", lambda s: draws.drawn_by(draws.one_always), ALL),
    Mutant("q doubled", lambda s: draws.drawn_by(draws.at_twice_the_rate), ALL),
    Mutant("whole nodes drawn or none", lambda s: draws.drawn_by(draws.all_or_none), ALL),
    Mutant("same cohort in each round", lambda s: draws.drawn_by(draws.same_each_time()), ALL),
)
