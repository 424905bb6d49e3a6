"""Two batches compared: their samples, statistics with their null, mean pictures, the blind test.

All of it looks at synthetic samples alone: post-processing, free of privacy cost.
"""

from __future__ import annotations

import math
import random
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import store_of
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.batches import (
    batch_identity,
    drop_damaged,
    intact_pixels,
    rank_batches,
)
from fedlens.dashboard.samples.statistics import Difference, Sets, differences
from fedlens.dashboard.widgets.display import frame, put_table
from fedlens.dashboard.widgets.markup import plain
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoredSample, StoreError

MOST = 2000
"""Samples of a batch that statistics are taken of."""
STRONGER = 3
"""How much stronger than it is a change is drawn, as the page says."""
WITHOUT = -1
"""In the place of a class, of samples that are unlabelled."""
FREE = ("seed",)
"""Settings in which two trainings of one null may differ."""


@dataclass(frozen=True)
class Side:
    """One batch of a run."""

    run: RunRecord
    batch: StoredBatch

    def wanted(self, class_: int | None = None) -> SampleFilter:
        """Its samples, of one class or all."""
        return SampleFilter(batch_id=self.batch.batch_id, requested_class=class_)

    @property
    def key(self) -> str:
        """Tells it from all batches of all runs: two stores number theirs alike."""
        return f"{self.run.run_id}-{self.batch.batch_id}"

    def samples(
        self, most: int, *, class_: int | None = None, offset: int = 0
    ) -> list[StoredSample]:
        """Its intact samples, from the store that knows its run."""
        found = store_of(self.run.run_id).samples(self.wanted(class_), offset=offset, limit=most)
        return drop_damaged(found)

    def total(self, class_: int | None = None) -> int:
        """How many they are; a whole batch, which may be of a million, is not counted anew."""
        if class_ is None:
            return self.batch.count
        return store_of(self.run.run_id).count_samples(self.wanted(class_))

    @property
    def identity(self) -> tuple[object, ...]:
        """Tells its samples from all that may take their place."""
        return store_of(self.run.run_id).place, *batch_identity(self.batch)

    def planes(self) -> Sets:
        """Its images in grey by class, at most `MOST` in all."""
        return _planes(self.identity, self)


@st.cache_resource(max_entries=16, show_spinner=False)  # not copied: nobody changes it
def _planes(made_from: tuple[object, ...], _side: Side) -> Sets:
    return planes_of(_side.samples(min(_side.batch.count, MOST)))


def planes_of(samples: list[StoredSample]) -> Sets:
    """Intact images in grey by class, brightness in [0, 1]; unlabelled ones all under -1."""
    by_class: dict[int, list[NDArray[Any]]] = {}
    for one in samples:
        pixels = intact_pixels(one)  # unpacked already, to see whether it is intact
        number = WITHOUT if one.requested_class is None else one.requested_class
        if pixels is not None:
            grey = pixels[0] if len(pixels) == 1 else pixels.mean(0)
            by_class.setdefault(number, []).append(grey)
    return {number: np.stack(planes) / 255 for number, planes in sorted(by_class.items())}


def same_but_seed(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs differ in nothing but what chance decides."""
    return one.run_id != other.run_id and _fixed(one.config) == _fixed(other.config)


def _fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in FREE}


def null_of(side: Side, runs: list[RunRecord]) -> list[Side]:
    """The newest batches of the same kind of runs that differ from a side's in the seed alone."""
    found = []
    for run in runs:
        if same_but_seed(side.run, run):
            there = rank_batches(store_of(run.run_id).batches(run.run_id))
            batches = [batch for batch in there if _alike(batch, side.batch)]
            found += [Side(run, batches[0])] if batches else []
    return found


def _alike(one: StoredBatch, other: StoredBatch) -> bool:
    return one.purpose == other.purpose


def mean_pictures(one: Sets, other: Sets) -> NDArray[np.uint8]:
    """Means of A, of B and how B differs, a column a class; uint8 [3 h, classes * w, 3].

    In the third row blue is where B is brighter, orange where it is darker.
    """
    columns = []
    for number in sorted(set(one) & set(other)):
        a, b = one[number].mean(0), other[number].mean(0)
        columns.append(np.concatenate([_grey(a), _grey(b), _signed(b - a)], axis=0))
    return np.concatenate(columns, axis=1)


def _grey(plane: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.repeat((255 * plane).astype(np.uint8)[..., None], 3, axis=2)


def _signed(change: NDArray[np.float64]) -> NDArray[np.uint8]:
    strong = STRONGER * change
    up, down = np.clip(strong, 0, 1)[..., None], np.clip(-strong, 0, 1)[..., None]
    white = np.array([245.0, 246.0, 248.0])
    blue, orange = np.array([27.0, 95.0, 158.0]), np.array([190.0, 86.0, 16.0])
    return np.asarray(white + up * (blue - white) + down * (orange - white)).astype(np.uint8)


BLIND = "blind"
"""Of the address: a blind test that is under way."""
TRIALS = 20
SHOWN = 12


def p_value(chosen: int, trials: int) -> float:
    """Two-sided p of so many choices of one side, where each is a fair coin's.

    Args:
        chosen: how often the one side was chosen, 0 to ``trials``.
        trials: how many choices there were.
    """
    far = max(chosen, trials - chosen)
    tail = sum(math.comb(trials, k) for k in range(far, trials + 1))
    return min(1.0, 2 * tail / math.pow(2, trials))


@dataclass
class BlindTest:
    """A series of trials; each shows samples of one side left, of the other right."""

    seed: int
    chosen_b: list[bool] = field(default_factory=list)
    """For each trial whether B's pictures were called the faulty ones."""

    def to_text(self) -> str:
        """The series so far, as `read_blind_test` takes it: an address keeps it over a reload."""
        return f"{self.seed}-{''.join('b' if b else 'a' for b in self.chosen_b)}"

    @property
    def number(self) -> int:
        """Of the trial under way, from 0."""
        return len(self.chosen_b)

    @property
    def over(self) -> bool:
        """Whether all trials are done."""
        return self.number >= TRIALS

    def b_is_left(self) -> bool:
        """On which side this trial shows B: a coin that the person cannot see."""
        return random.Random(f"{self.seed}/{self.number}").random() < 0.5  # noqa: S311

    def drawn(self, count: int) -> tuple[list[int], list[int]]:
        """Places of this trial's samples among the first ``count`` of A and of B."""
        coin = random.Random(f"{self.seed}/{self.number}/samples")  # noqa: S311
        size = min(SHOWN, count)
        return coin.sample(range(count), size), coin.sample(range(count), size)

    def choose(self, *, left: bool) -> None:
        """Take the person's answer: the left or the right pictures are the faulty ones."""
        if not self.over:
            self.chosen_b.append(left == self.b_is_left())

    def verdict(self) -> str:
        """What the answers say."""
        times, trials = sum(self.chosen_b), len(self.chosen_b)
        p = p_value(times, trials)
        said = f"B was called the faulty one in {times} of {trials} trials (p = {p:.2g})."
        if p >= 0.05:
            return f"{said} That is within chance: no difference was seen."
        side = "B" if times * 2 > trials else "A"
        return f"{said} The difference is seen, and {side} is taken for the faulty one."


NO_NULL = (
    "There is **no baseline run**: no run here differs from A or B in its seed alone. "
    "Two trainings of one federation differ too, by more than their samples do, so a large "
    "change over the samples' error is no proof. Train A again with another `--seed`."
)
POOL = 400
LARGEST = 8
"""Times that a mean picture is enlarged at most."""


def render_means(one: Side, other: Side) -> None:
    """Mean pictures by class."""
    shared = set(one.planes()) & set(other.planes())
    if not shared:
        st.info("The two batches have no class in common: there is nothing to compare by class.")
        return
    pixels = _means((one.identity, other.identity), one, other)
    by_class, columns = (" by class", "; a column a class") if shared != {WITHOUT} else ("", "")
    images.render_image(
        pixels,
        factor=max(1, min(900 // pixels.shape[1], LARGEST)),
        alt=f"Mean pictures{by_class}: of A, of B, and how B differs",
    )
    st.caption(
        f"Mean of A, mean of B, and the change{columns}. Blue: B is brighter there; "
        f"orange: darker. The change is drawn {STRONGER} times as strong as it is, and saturates "
        f"at 1/{STRONGER} of full brightness.{_taken(one, other, MOST)}"
    )


@st.cache_resource(max_entries=16, show_spinner=False)
def _means(made_from: tuple[object, ...], _one: Side, _other: Side) -> NDArray[np.uint8]:
    return mean_pictures(_one.planes(), _other.planes())


@st.cache_resource(max_entries=16, show_spinner=False)
def _differences(
    made_from: tuple[object, ...], _one: Side, _other: Side, _null: list[Side]
) -> list[Difference]:
    return differences(_one.planes(), _other.planes(), [side.planes() for side in _null])


def _taken(one: Side, other: Side, most: int) -> str:
    """That not all samples were looked at, where that is so."""
    if max(one.batch.count, other.batch.count) <= most:
        return ""
    return f" Of each batch the first {most:,} samples are taken."


def render_statistics(one: Side, other: Side, runs: list[RunRecord]) -> None:
    """The table of differences, with the null that there is."""
    null = [*null_of(one, runs), *null_of(other, runs)]
    null = [side for side in null if side.run.run_id not in (one.run.run_id, other.run.run_id)]
    found = _differences(tuple(side.identity for side in (one, other, *null)), one, other, null)
    put_table(frame([_row(each) for each in found]), "Table of how the two batches differ")
    if null:
        names = ", ".join(side.run.name for side in null)
        st.caption(
            f"Null between seeds from {plain(names)}: beyond ±3 is more than chance of training."
            + _taken(one, other, MOST)
        )
    else:
        st.caption(NO_NULL + _taken(one, other, MOST))


def _row(each: Difference) -> dict[str, object]:
    return {
        "Measure": each.measure,
        "A": round(each.one, 4),
        "B": round(each.other, 4),
        "Change": round(each.change, 4),
        "Standard error": round(each.error, 4),
        "Difference in σ of seeds": "no baseline run"
        if each.deviations is None
        else f"{each.deviations:+.1f}",
    }


def read_blind_test(said: str) -> BlindTest | None:
    """The series that an address holds; None for what is none."""
    found = re.fullmatch(rf"(\d{{1,10}})-([ab]{{0,{TRIALS}}})", said, re.ASCII)
    return None if found is None else BlindTest(int(found[1]), [one == "b" for one in found[2]])


def offer_blind_test(one: Side, other: Side) -> None:
    """A way to begin the trials; from then on the page shows nothing else."""
    st.caption(
        f"{TRIALS} trials: samples of both sides without their names. Say which are the faulty "
        "ones; the verdict comes at the end, with the chance that guessing would do as well."
        + _taken(one, other, POOL)
    )
    if st.button("Begin the blind test", key="blind-begin", type="primary"):
        sides = {"run": one.run.run_id, "batch": str(one.batch.batch_id)}
        sides |= {"with": other.run.run_id, "batch2": str(other.batch.batch_id)}
        st.query_params.from_dict(sides | {BLIND: BlindTest(secrets.randbits(32)).to_text()})
        st.rerun()


def side_of_address(run: str, batch: str) -> Side | None:
    """The side that these parameters of the address name; None where there is no such batch."""
    run_id, number = st.query_params.get(run, ""), st.query_params.get(batch, "")
    try:
        owner = store_of(run_id)
        found = {str(each.batch_id): each for each in owner.batches(run_id)}
        return Side(owner.run(run_id), found[number])
    except (StoreError, KeyError):
        return None


def render_blind_test(test: BlindTest, one: Side, other: Side) -> None:
    """A trial without names, or the verdict, which the page may keep."""
    if not test.over:
        _trial(test, one, other)
        return
    st.success(test.verdict())
    st.caption(f"A was run {plain(one.run.name)}, B was run {plain(other.run.name)}.")
    _keep_verdict(test, one, other)


def _keep_verdict(test: BlindTest, one: Side, other: Side) -> None:
    """Write the verdict into the history of a finding of either run."""
    if not account().may("manage"):
        return
    for side in (other, one):
        owner = store_of(side.run.run_id)
        for finding in owner.findings(run_id=side.run.run_id):
            words = f"Keep with finding {finding.finding_id}: {finding.hypothesis}"
            if st.button(plain(words), key=f"keep-{side.key}-{finding.finding_id}"):
                said = f"Blind test, A {one.run.name}, B {other.run.name}: {test.verdict()}"
                number, author = finding.finding_id, require("manage").name
                owner.set_finding_status(number, finding.status, author=author, note=said)
                st.toast("Kept with the finding")


def _choose(test: BlindTest, left: bool) -> None:
    test.choose(left=left)
    st.query_params[BLIND] = test.to_text()


def _trial(test: BlindTest, one: Side, other: Side) -> None:
    a, b = _pool(one), _pool(other)
    of_a, of_b = test.drawn(min(len(a), len(b)))
    sides = [[a[i] for i in of_a], [b[i] for i in of_b]]
    if test.b_is_left():
        sides.reverse()
    st.progress(test.number / TRIALS, text=f"Trial {test.number + 1} of {TRIALS}")
    for column, samples, left in zip(st.columns(2), sides, (True, False), strict=True):
        with column:
            pixels = images.sheet([each.png for each in samples], 6, 1)
            images.render_image(
                pixels, factor=max(1, 480 // pixels.shape[1]), alt="Samples of one side"
            )
            st.button(
                "These are the faulty ones",
                key=f"blind-{test.number}-{left}",
                shortcut="1" if left else "2",
                on_click=_choose,
                args=(test, left),
            )


def _pool(side: Side) -> list[StoredSample]:
    return side.samples(POOL)
