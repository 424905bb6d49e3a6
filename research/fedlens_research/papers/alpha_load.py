"""Study ``alpha-load``: household loads that stay useful and hide who is up.

After Jafarzadeh Asl et al. 2023 (arXiv:2310.18241), section IV-D.

A causal LSTM releaser changes 24 hours of load; an LSTM adversary tells hour by hour whether
a person is active. The paper's adversary is causal too; ours reads the day from its end as well,
as attackers do who have the whole of it. Fresh attackers are fitted on released loads of other
households, and everything is scored on a third set of households that neither has met.

    NE = E|X − Z|² / E|X|²    over all hours of the test households

Sequences start at any hour of a day: who knows the clock guesses presence from it alone, whatever
is released (line ``clock``), and a load's shape tells the clock too. Side information is weekday
and month of the start, as in the paper, given to adversary and attacker; ``clock`` adds the hour.
Reference lines: ``raw`` reads the load as it is, ``side`` the side information and the place in
the sequence alone, ``constant`` what is left when every hour is released as the mean load.

A point is an order and an error budget: the most doubt at an NE of the train part near that. With
the two weighed against each other instead (a fixed λ) training jumps: nothing is hidden, or all.
With ``releaser = "peaks"`` a rule takes the LSTM's place that is fitted to the budget alone,
whatever the order: high peaks of some days go out as they are, everything else as a constant.

Simulation only. Settings were chosen on the attack part cut in two; of the quick ones, the budget
of 0.3 was added after NE of the test part had been seen at 0.2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row, number
from fedlens.privatizers.alpha import AlphaObjective, AlphaPrivatizer, Mode
from fedlens.privatizers.attacks.attack_runs import (
    build_attackers,
    columns,
    normalised_error,
    read_all,
    read_sensitive,
    released,
    released_parts,
)
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.protocol import Attacker
from fedlens.privatizers.attacks.claims import ONE, Claims
from fedlens.privatizers.attacks.filter_files import keep_filter
from fedlens.privatizers.attacks.gate import claims_of
from fedlens.privatizers.networks.adversaries import LstmAdversary
from fedlens.privatizers.networks.peaks import fit_peaks
from fedlens.privatizers.networks.releasers import LstmReleaser
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import FILTER, PrivatizerError
from fedlens.privatizers.training import Progress
from fedlens_research.framework.charts import plot_lines, plot_loads
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.settings import check_names, parse_points
from fedlens_research.framework.study import SeedTrial
from fedlens_research.papers.adversarial import train_against

COLUMNS = (
    "side", "point", "mode", "seed", "NE", "paper_NE", "attacker", "paper_attacker", "drop",
    "paper_drop", "reweighted", "seconds",
)  # fmt: skip
SIDES = ("none", "calendar", "clock")
"""What adversary and attacker know besides."""
RELEASERS = ("lstm", "peaks")
PAPER_RAW, PAPER_NE, PAPER_DROP = 0.90, 0.26, 0.26
"""Raw attacker (more than), error (less than) and points off it (more than), section IV-D."""
PAPER_SIDE = 0.578
"""Attacker of weekday and month alone; its models reach 0.578, 0.552 and, for α = 1, 0.568, but
which order is which is lost."""
SHOWN = 5


@dataclass(frozen=True)
class AlphaLoadSettings:
    """What ``alpha_load.toml`` sets."""

    data: str  # source of the loads: household, embedded-household or eco:PATH
    sides: tuple[str, ...]  # ``none``, ``calendar`` (weekday and month) or ``clock`` (and the hour)
    points: tuple[str, ...]  # orders and error budgets without side information, ``alpha:NE``
    side_points: tuple[str, ...]  # the same with side information
    modes: tuple[Mode, ...]  # ``entropy``, ``loss`` or both
    releaser: str  # ``lstm``, trained against an adversary, or ``peaks``, a rule
    least_peak: float  # of the rule: kW that an hour has at least which goes out as it is
    counted: float  # of the rule: kW above which an hour counts as one in use
    hidden: int  # units of the releaser's four layers
    adversary_hidden: int  # units of the adversary's three layers
    batch: int  # sequences of a minibatch
    meeting_steps: int  # in which the adversary alone learns, before
    gated: bool  # whether the share that the releaser keeps of an hour depends on the load
    whole_day: bool  # whether it sees the hours after as well, and releases a day when it is over
    keep: float  # share of a load's distance to its mean that the releaser keeps at the start
    output_noise_std: float  # deviation of noise on each released hour, kW
    penalty: float  # of NE beyond its budget, squared
    steps: int  # of both
    adversary_steps: int  # k, of the adversary in each
    rate: float  # Adam's, of the releaser
    adversary_rate: float  # of the adversary
    last_rate: float  # share of them at the end
    attackers: tuple[str, ...]  # by name
    attacker_steps: int  # of the networks among them, at least

    def __post_init__(self) -> None:
        check_names("sides", self.sides, SIDES)
        check_names("modes", self.modes, get_args(Mode))
        check_names("releaser", [self.releaser], RELEASERS)
        check_names("attackers", self.attackers, ATTACKERS)
        if not self.points:
            raise PrivatizerError("points must give at least one order and error budget")
        for alpha, budget in parse_points([*self.points, *self.side_points], "an error budget"):
            AlphaObjective(alpha, error_budget=budget, penalty=self.penalty)

    def fresh(self) -> dict[str, Attacker]:
        """The attackers, not yet fitted."""
        return build_attackers(self.attackers, self.attacker_steps)


SETTINGS = AlphaLoadSettings


def run_seed(settings: AlphaLoadSettings, trial: SeedTrial) -> list[Row]:
    """Reference rows, then a row for each side information, mode, order and budget."""
    return [row for side in settings.sides for row in _side_rows(settings, side, trial)]


def _side_rows(settings: AlphaLoadSettings, side: str, trial: SeedTrial) -> list[Row]:
    """The rows of one side information; loads are drawn at the first seed, of the first."""
    seed = trial.seed
    split = load_side(settings, side, trial.data_dir, seed)
    rows = trial.rows(
        {"side": side, "raw": True}, lambda: reference_rows(settings, split, side, seed)
    )
    raw = number(rows[0], "attacker")
    trial.report(f"alpha-load: {side}, seed {seed}: raw attacker {raw:.3f}")
    points = parse_points(settings.points if side == "none" else settings.side_points)
    some = split.test.take(slice(0, SHOWN))
    loads = {"raw": some}
    for mode, (alpha, budget) in product(settings.modes, points):
        place: Row = {"side": side, "point": f"{alpha:g}:{budget:g}", "mode": mode}

        def measure(mode: Mode = mode, alpha: float = alpha, budget: float = budget) -> Piece:
            began = time.perf_counter()
            net = releaser_of(settings, split.train, mode, alpha, budget, seed)
            row = point_row(settings, net, split, raw, seed)
            path = trial.filter_path(f"{side} {mode} {alpha:g} {budget:g}")
            keep_filter(net, split.train, path, _claims(net, split, row, seed))
            shown = released(net, some, seed).records
            return Piece([{**row, "seconds": time.perf_counter() - began}], {"after": shown})

        found = trial.piece(place, measure)
        (row,) = found.rows
        rows.append({**place, **row})
        trial.report(
            f"alpha-load: {side} {mode} {place['point']} seed {seed}: NE {row['NE']:.3f}, "
            f"attacker {row['attacker']:.3f}"
        )
        loads[f"{mode} {place['point']}"] = replace(some, records=found.shown["after"])
    if trial.first and side == settings.sides[0]:
        plot_loads(loads, trial.out / "alpha-load-sheet.png")
    return rows


def _claims(net: nn.Module, split: Split, row: Row, seed: int) -> Claims:
    """By the study's attackers, who read releases."""
    read = max(number(row, "attacker"), number(row, "reweighted"))
    return claims_of(net, split.test, {ONE: read}, None, 1 - number(row, "NE"), seed)


def load_side(settings: AlphaLoadSettings, side: str, data_dir: Path | None, seed: int) -> Split:
    """The source with as much side information as ``side`` names."""
    clock = ",clock=yes" if ":" in settings.data else ":clock"
    name = settings.data + (clock if side == "clock" else "")
    split = load_private(name, data_dir, seed)
    if side != "none":
        return split
    return Split(*(replace(part, side=None) for part in (split.train, split.attack, split.test)))


def reference_rows(settings: AlphaLoadSettings, split: Split, side: str, seed: int) -> list[Row]:
    """What is read from raw loads, from what is known besides, and from a constant load."""
    raw = read_all(settings.fresh(), split.attack, split.test, seed)
    known = read_sensitive(ATTACKERS["position"](), split.attack, split.test, seed)
    head: Row = {"side": side, "mode": None, "seed": seed}
    first: Row = {"paper_attacker": PAPER_RAW, "NE": 0.0, "drop": 0.0, **raw}
    paper = PAPER_SIDE if side == "calendar" else None
    mean = split.train.records.mean()
    error = normalised_error(
        split.test, replace(split.test, records=mean.expand_as(split.test.records))
    )
    drop = number(raw, "attacker") - known.balanced
    alone: Row = {"paper_attacker": paper, "NE": error, "drop": drop, **columns({"side": known})}
    return [{**head, "point": "raw", **first}, {**head, "point": "constant", **alone}]


def objective_of(
    settings: AlphaLoadSettings,
    train: PrivateData,
    mode: Mode,
    alpha: float,
    budget: float | None = None,
) -> AlphaObjective:
    """Distortion is NE of the train part, as the budget is; without one λ = 1 weighs the two."""
    scale = 1 / float(train.records.square().mean())
    return AlphaObjective(
        alpha, 1.0, mode, distortion=scale, error_budget=budget, penalty=settings.penalty
    )


def releaser_of(
    settings: AlphaLoadSettings,
    train: PrivateData,
    mode: Mode,
    alpha: float,
    budget: float,
    seed: int,
) -> nn.Module:
    """The releaser of a point: trained against an adversary, or the rule of the same budget."""
    if settings.releaser == "peaks":
        return fit_peaks(train.records, budget, least=settings.least_peak, counted=settings.counted)
    objective = objective_of(settings, train, mode, alpha, budget)
    return train_point(settings, train, objective, seed).networks[FILTER]


def train_point(
    settings: AlphaLoadSettings,
    train: PrivateData,
    objective: AlphaObjective,
    seed: int,
    progress: Progress | None = None,
) -> AlphaPrivatizer:
    """A releaser and its adversary; NE of the train part comes near the objective's error budget.

    Near the identity a releaser can be inverted: no small change of it changes what is left of the
    sensitive attribute, and the gradient of mode ``loss`` is nearly 0 there. So a releaser starts
    at the other end (``keep`` = 0), releases little but the mean, and lets through what its budget
    asks for.
    """
    net, adversary = networks(settings, train, seed)
    method = AlphaPrivatizer(net, adversary, objective)
    rates = {FILTER: settings.rate, "adversary": settings.adversary_rate}
    meeting = settings.meeting_steps
    train_against(method, train, settings, rates, meeting=meeting, seed=seed, progress=progress)
    return method


def networks(
    settings: AlphaLoadSettings, train: PrivateData, seed: int
) -> tuple[LstmReleaser, LstmAdversary]:
    """The releaser and its adversary, not yet trained."""
    generator = torch.Generator().manual_seed(seed)
    steps, channels = train.shape
    net = LstmReleaser(
        channels, hidden=settings.hidden, low=train.low, high=train.high, steps=steps,
        keep=settings.keep, level=float(train.records.mean()),
        output_noise_std=settings.output_noise_std, gated=settings.gated,
        both_ways=settings.whole_day, generator=generator,
    )  # fmt: skip
    side = 0 if train.side is None else train.side.shape[-1]
    adversary = LstmAdversary(
        channels, train.sensitive_classes, hidden=settings.adversary_hidden, side=side,
        both_ways=True, generator=generator,
    )  # fmt: skip
    return net, adversary


def point_row(
    settings: AlphaLoadSettings, net: nn.Module, split: Split, raw: float, seed: int
) -> Row:
    """What fresh attackers read of released loads of test households, and how far these are off."""
    attack, test = released_parts(net, split, seed)
    found = read_all(settings.fresh(), attack, test, seed)
    return {
        "seed": seed,
        "NE": normalised_error(split.test, test),
        "paper_NE": PAPER_NE,
        "paper_drop": PAPER_DROP,
        "drop": raw - number(found, "attacker"),
        **found,
    }


def draw(rows: Sequence[Row], settings: AlphaLoadSettings, out: Path) -> None:
    """The strongest attacker against NE, a line for each side information, mode and order."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["mode"] is not None:
            alpha = str(row["point"]).partition(":")[0]
            name = f"{row['side']}, {row['mode']}, α={alpha}"
            lines.setdefault(name, []).append((number(row, "NE"), number(row, "attacker")))
    raw = [number(row, "attacker") for row in rows if row["point"] == "raw"]
    plot_lines(
        lines,
        xlabel="NE: normalised squared error",
        ylabel="strongest attacker (balanced accuracy)",
        level=(f"raw, less {PAPER_DROP:.0%}", raw[0] - PAPER_DROP),
        path=out / "alpha-load-curve.png",
    )
