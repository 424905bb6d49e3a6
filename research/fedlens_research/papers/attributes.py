"""Study ``attributes``: one attribute of an image stays readable, another does not.

After Bertran et al. 2019, sections 5.2 and 5.3.

The information privatizer trains a filter by Algorithm 2: the provider's network for the utility is
fixed and goes on reading released images unchanged; an adversary for the sensitive attribute
learns all along.
A point of the curve is a weight α of equation 6, or a budget: at most b nats may leak. Squares let
go of a leak as it gets small; a budget below what an attacker could use keeps pressing.
Where the data of the paper is at hand (CelebA, FaceScrub, UTKFace, CIFAR-100, by path) it runs on
that; digit against thickness on MNIST stands in for it, with another pair of attributes: its
figures are not comparable with the paper's, which are printed beside them for their size alone.

``code_reader`` has the filter's weights and reads the noisy code that a release is computed from,
with all labelled images there are: no reader of a release can know more than the best reader of
the code, which this one estimates from below (``x10``: ten releases of each image). Filters that
show no code have no such column, and may tell more than is found.
Fresh attackers are fitted on released images that neither the filter nor its adversary has met;
``frozen`` is an attacker fitted on *raw* images, which flatters every filter. ``utility`` is the
provider's unchanged network, on raw images and on released ones, both of the test part. Where the
sensitive attribute has a formula (stroke width), an attacker that computes it is one of them.

Simulation only. Settings are to be chosen on the attack part cut in two, never on the test part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import nn

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row, number
from fedlens.privatizers.attacks.attack_runs import read_all, released, released_parts
from fedlens.privatizers.attacks.attackers.formula import with_formula
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker
from fedlens.privatizers.attacks.attackers.protocol import Attacker, FittedAttacker
from fedlens.privatizers.attacks.attackers.reading_nets import accuracy, learn, small_reader
from fedlens.privatizers.attacks.claims import Claims
from fedlens.privatizers.attacks.filter_files import keep_filter
from fedlens.privatizers.attacks.gate import CODE_COLUMNS, judge_code
from fedlens.privatizers.attacks.scores import judge
from fedlens.privatizers.attacks.targets import target_of
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import FILTER, Privatizer
from fedlens_research.framework.charts import plot_lines, plot_sheet
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.study import SeedTrial
from fedlens_research.papers.attributes_training import BASELINES, AttributesSettings, trainings

COLUMNS = (
    "data", "filter", "alpha", "budget", "seed", "utility_raw", "utility", *CODE_COLUMNS,
    "paper_utility", "utility_loss", "attacker_raw", "frozen", "attacker", "attacker_formula",
    "paper_attacker", "seconds",
)  # fmt: skip
PAPER_USE, PAPER_ATTACKER = 0.936, 0.57
"""CelebA, gender kept and smile hidden (Bertran et al., Table 2): means of its two columns, by the
networks of its authors; the raw figures are 0.943 and 0.927."""
SHOWN = 10


@dataclass(frozen=True, eq=False)
class RawService:
    """What is there before any filter, of one source and seed."""

    reader: nn.Module  # the provider's network for the utility
    utility: float  # its accuracy on raw test images
    attacker: float  # balanced accuracy of the strongest attacker of raw images
    frozen: FittedAttacker  # the networks' attacker as fitted on raw images


SETTINGS = AttributesSettings


def run_seed(settings: AttributesSettings, trial: SeedTrial) -> list[Row]:
    """A row for each source and filter."""
    return [row for source in settings.data for row in _source_rows(settings, source, trial)]


def _source_rows(settings: AttributesSettings, source: str, trial: SeedTrial) -> list[Row]:
    """The rows of one source; images before and after each filter are drawn at the first seed."""
    seed, data = trial.seed, source.partition(":")[0]
    split = load_private(source, trial.data_dir, seed)
    provider = cache(lambda: provide(settings, split, seed))
    sheet = {"raw": split.test.records[:SHOWN]}
    rows: list[Row] = []
    reader = cache(lambda: provider().reader)
    for place, train in trainings(settings, split.train, reader, seed):

        def measure(train: Callable[[], Privatizer] = train, place: Row = place) -> Piece:
            began = time.perf_counter()
            method = train()
            path = trial.filter_path(f"{data} {_named(place)}")
            row, claims = point_row(settings, method, provider(), split, seed)
            keep_filter(method.networks[FILTER], split.train, path, claims)
            few = released(method.networks[FILTER], split.test.take(slice(0, SHOWN)), seed)
            return Piece([{**row, "seconds": time.perf_counter() - began}], {"after": few.records})

        found = trial.piece({"data": source, **place}, measure)
        (row,) = found.rows
        if place["filter"] in BASELINES:  # the paper's figures are of its own filter
            row |= {"paper_utility": None, "paper_attacker": None}
        rows.append({"data": data, **place, "seed": seed, **row})
        trial.report(
            f"attributes: {data} {_named(place)} seed {seed}: utility {row['utility']:.3f} of "
            f"{row['utility_raw']:.3f}, code's reader {_code(row)}, without weights "
            f"{row['attacker']:.3f}"
        )
        sheet[_named(place)] = found.shown["after"]
    if trial.first:
        plot_sheet(sheet, trial.out / f"attributes-{data}-sheet.png")
    return rows


def _code(row: Row) -> str:
    return "none" if row["code_reader"] is None else f"{row['code_reader']:.3f}"


def _named(place: Row) -> str:
    found = ((sign, place[key]) for sign, key in (("α", "alpha"), ("b", "budget")))
    return " ".join([str(place["filter"]), *(f"{s}={v:g}" for s, v in found if v is not None)])


def provide(settings: AttributesSettings, split: Split, seed: int) -> RawService:
    """The provider's network, and attackers of raw images."""
    generator = torch.Generator().manual_seed(seed)
    train = split.train
    reader = small_reader(train.shape, train.utility_classes, generator)
    steps = settings.reading_steps
    learn(reader, train.records, train.utility, steps=steps, rate=2e-3, seed=seed)
    attack = split.attack
    raw = read_all(_attackers(settings, attack, seed), attack, split.test, seed)
    frozen = NetworkAttacker(epochs=1, steps=settings.attacker_steps).fit(
        replace(attack, side=None), seed
    )
    utility = accuracy(reader, split.test.records, split.test.utility)
    return RawService(reader, utility, number(raw, "attacker"), frozen)


def point_row(
    settings: AttributesSettings, method: Privatizer, provider: RawService, split: Split, seed: int
) -> tuple[Row, Claims]:
    """What the provider and fresh attackers read of released test images, and what that claims."""
    code, claims = judge_code(
        target_of(method.networks[FILTER], split, seed), settings.code_steps, seed
    )
    attack, test = released_parts(method.networks[FILTER], split, seed)
    utility = accuracy(provider.reader, test.records, test.utility)
    row: Row = {
        "utility_raw": provider.utility,
        "utility": utility,
        "paper_utility": PAPER_USE,
        "utility_loss": provider.utility - utility,
        **code,
        "attacker_raw": provider.attacker,
        "frozen": judge(provider.frozen, test, seed, resamples=2).balanced_accuracy,
        "paper_attacker": PAPER_ATTACKER,
        "squared_error": float((test.records - split.test.records).square().mean()),
        **read_all(_attackers(settings, attack, seed), attack, test, seed),
    }
    return row, claims


def _attackers(settings: AttributesSettings, attack: PrivateData, seed: int) -> dict[str, Attacker]:
    """Fresh attackers of images as in ``attack``, the formula's with a reader of its own."""
    return with_formula(
        settings.fresh(), attack, attack.name, steps=settings.reading_steps, seed=seed + 7
    )


def draw(rows: Sequence[Row], settings: AttributesSettings, out: Path) -> None:
    """Who reads the code, and attackers without weights, against what the utility loses."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for kind in ("code_reader", "attacker", "frozen"):
            point = (100 * number(row, "utility_loss"), number(row, kind))
            name = f"{row['data']}, {row['filter']}: {kind}"
            lines.setdefault(name, []).append(point)
    plot_lines(
        lines,
        xlabel="utility that is lost (points)",
        ylabel="balanced accuracy on the sensitive attribute",
        level=("raw images", number(rows[0], "attacker_raw")),
        path=out / "attributes-curve.png",
    )
