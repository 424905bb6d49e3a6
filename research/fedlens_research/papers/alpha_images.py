"""Study ``alpha-images``: digits stay readable, their thickness does not.

After Jafarzadeh Asl et al. 2023 (arXiv:2310.18241), section IV-C.

On annotated MNIST a releaser is trained for each order α and weight λ, with an adversary and with
the network that reads digits; then fresh attackers are fitted on released images that neither it
nor they have met, and everything is scored on the test images.

Who has the filter's weights comes first: ``code_reader`` reads the noisy code that a release is
computed from, with all labelled images there are: no reader of a release can know more than
the best reader of the code, which this one estimates from below. ``alike_x10`` sees ten
near-duplicates of each image, ``noise_free`` codes without noise; ``answer`` is told a network's
answer in place of an image. The other columns are of attackers without
weights, as the paper has them, and flatter the filter.

Reference lines come first. ``raw``: everybody reads the images as they are. ``digit``: an attacker
who knows each image's digit and nothing else. The rule's sensitive attribute hangs on the digit
(nine in ten
ones are thick), so even a releaser that hands out nothing but a perfect digit cannot push an
attacker below that line: it is the floor of this table, not 50%.

Attackers are scored twice: by their likeliest class, as the paper does (``attacker``), and with
their answers divided by the classes' shares (``reweighted``), which is the better strategy for
balanced accuracy. The formula attacker knows the rule: it reads the digit with a network, counts
the ink of that digit's row at two thresholds, and counts what each width means after the releaser.
``tca`` is the paper's own such attacker, with its three readings of the rule's answer "normal" and
the best of them on the test images (``tca_normal``).

Simulation only. Settings are to be chosen on the attack part cut in two, never on the test part.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row, number
from fedlens.models.classifiers import check_image
from fedlens.models.students import StudentCnn
from fedlens.privatizers.alpha import AlphaObjective, AlphaPrivatizer, Mode
from fedlens.privatizers.attacks.attack_runs import (
    AttributeReading,
    build_attackers,
    columns,
    read_all,
    read_sensitive,
    released,
    released_parts,
)
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.formula import THRESHOLDS, FormulaAttacker, InkFormula
from fedlens.privatizers.attacks.attackers.protocol import Attacker
from fedlens.privatizers.attacks.attackers.reading_nets import accuracy, learn, small_reader
from fedlens.privatizers.attacks.claims import Claims
from fedlens.privatizers.attacks.filter_files import keep_filter
from fedlens.privatizers.attacks.gate import CODE_COLUMNS, judge_code
from fedlens.privatizers.attacks.targets import target_of
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import FILTER, PrivatizerError
from fedlens.privatizers.training import Progress, Stage, train_privatizer
from fedlens_research.framework.charts import plot_lines, plot_sheet
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.settings import check_names, parse_points
from fedlens_research.framework.study import SeedTrial
from fedlens_research.metrics.labelling import read_by_rule, rule_of
from fedlens_research.papers.adversarial import adversary_of, moved, train_against

COLUMNS = (
    "point", "mode", "seed", "digits", *CODE_COLUMNS, "paper_digits", "attacker", "paper_attacker",
    "attacker_formula", "tca", "tca_normal", "reweighted", "digits_fresh", "squared_error",
    "seconds",
)  # fmt: skip
PAPER_RAW = (0.9725, 0.9150)
"""Digits and thickness read from raw images (Jafarzadeh Asl et al. 2023, section IV-C)."""
SHOWN = 10


@dataclass(frozen=True)
class AlphaImagesSettings:
    """What ``alpha_images.toml`` sets."""

    # source of the images; its sensitive attribute must hang on a digit's row for the formula
    data: str
    points: tuple[str, ...]  # orders and weights, ``alpha:weight``
    modes: tuple[Mode, ...]  # ``entropy``, ``loss`` or both
    distortion: float  # weight of the squared error
    beta: float  # weight of the digit network's cross-entropy
    width: int  # of the releaser
    code: int  # numbers of its code
    capacity: float  # nats that the code can tell at most
    shift: int  # pixels by which training images are moved at most, each batch its own way
    output_noise_std: float  # standard deviation of the noise on each released pixel
    batch: int  # images of a minibatch
    reading_steps: int  # of the network that reads digits, before
    copying_steps: int  # in which the releaser learns to serve the network that reads digits
    steps: int  # against the adversary
    adversary_steps: int  # k, of the adversary in each
    rate: float  # Adam's, of releaser and adversary
    last_rate: float  # share of it at the end
    attackers: tuple[str, ...]  # by name; the formula's own comes on top
    attacker_steps: int  # of the networks among them, at least
    code_steps: int  # batches of the network that reads the code

    def __post_init__(self) -> None:
        check_names("modes", self.modes, get_args(Mode))
        check_names("attackers", self.attackers, ATTACKERS)
        if not self.points:
            raise PrivatizerError("points must give at least one order and weight")
        parse_points(self.points)


SETTINGS = AlphaImagesSettings


def run_seed(settings: AlphaImagesSettings, trial: SeedTrial) -> list[Row]:
    """A row for each reference line, then for each mode, order and weight."""
    seed = trial.seed
    split = load_private(settings.data, trial.data_dir, seed)
    rows = trial.rows({"raw": True}, lambda: reference_rows(settings, split, seed))
    trial.report(f"alpha-images: seed {seed}: raw attacker {rows[-2]['attacker']:.3f}")
    start = cache(lambda: serving_start(settings, split.train, seed))
    sheet = {"raw": split.test.records[:SHOWN]}
    for mode, (alpha, weight) in product(settings.modes, parse_points(settings.points)):
        place: Row = {"point": f"{alpha:g}:{weight:g}", "mode": mode}

        def measure(mode: Mode = mode, alpha: float = alpha, weight: float = weight) -> Piece:
            began = time.perf_counter()
            method = train_point(settings, split.train, start(), mode, alpha, weight, seed)
            path = trial.filter_path(f"{mode} {alpha:g} {weight:g}")
            row, claims = point_row(settings, method, split, seed)
            keep_filter(method.networks[FILTER], split.train, path, claims)
            few = released(method.networks[FILTER], split.test.take(slice(0, SHOWN)), seed)
            seconds = time.perf_counter() - began
            return Piece([{**row, "seconds": seconds}], {"after": few.records})

        found = trial.piece(place, measure)
        (row,) = found.rows
        rows.append({**place, **row})
        code = "none" if row["code_reader"] is None else f"{row['code_reader']:.3f}"
        trial.report(
            f"alpha-images: {mode} {place['point']} seed {seed}: digits {row['digits']:.3f}, "
            f"code's reader {code}, without weights {row['attacker']:.3f}"
        )
        sheet[f"{mode} {place['point']}"] = found.shown["after"]
    if trial.first:
        plot_sheet(sheet, trial.out / "alpha-images-sheet.png")
    return rows


def reference_rows(settings: AlphaImagesSettings, split: Split, seed: int) -> list[Row]:
    """What is read from raw images, and from the digit alone."""
    began = time.perf_counter()
    found = _read(settings, split, split.attack, split.test, seed)
    head: Row = {"point": "raw", "mode": None, "seed": seed, "digits": found["digits_fresh"]}
    paper: Row = {"paper_digits": PAPER_RAW[0], "paper_attacker": PAPER_RAW[1]}
    seconds = time.perf_counter() - began
    raw: Row = {**head, **paper, "squared_error": 0.0, "seconds": seconds, **found}
    known = columns({"digit": digit_reading(split, seed)})
    return [raw, {"point": "digit", "mode": None, "seed": seed, **known}]


def digit_reading(split: Split, seed: int) -> AttributeReading:
    """What the digit alone says of the attribute: no releaser that keeps digits goes below."""
    attack, test = (
        replace(part, side=part.utility[:, None].float()) for part in (split.attack, split.test)
    )
    return read_sensitive(FormulaAttacker([_told_digit]), attack, test, seed)


def serving_start(settings: AlphaImagesSettings, train: PrivateData, seed: int) -> AlphaPrivatizer:
    """A releaser that keeps digits, and a network that reads them: where every point starts."""
    generator = torch.Generator().manual_seed(seed)
    shape = check_image(train.shape)
    reader = small_reader(shape, train.utility_classes, generator)
    learn(reader, train.records, train.utility, steps=settings.reading_steps, rate=2e-3, seed=seed)
    net = ConvReleaser(
        shape, settings.width, code=settings.code, capacity=settings.capacity,
        output_noise_std=settings.output_noise_std,
        low=train.low, high=train.high, generator=generator,
    )  # fmt: skip
    adversary = adversary_of(net, train, generator)
    objective = AlphaObjective(1.0, 0.0, distortion=settings.distortion, beta=settings.beta)
    method = AlphaPrivatizer(net, adversary, objective, utility=reader)
    serving = Stage("serving", {FILTER: settings.rate}, settings.copying_steps)
    change = moved(settings.shift)
    train_privatizer(method, train, [serving], batch=settings.batch, seed=seed, change=change)
    return method


def train_point(
    settings: AlphaImagesSettings,
    train: PrivateData,
    start: AlphaPrivatizer,
    mode: Mode,
    alpha: float,
    weight: float,
    seed: int,
    progress: Progress | None = None,
) -> AlphaPrivatizer:
    """One point of the curve, from a copy of the start."""
    objective = AlphaObjective(
        alpha, weight, mode, distortion=settings.distortion, beta=settings.beta
    )
    networks = copy.deepcopy(dict(start.networks))
    method = AlphaPrivatizer(
        networks[FILTER], networks["adversary"], objective, utility=networks["utility"]
    )
    rate = settings.rate
    rates = {FILTER: rate, "adversary": rate, "utility": rate / 4}
    meeting = max(1, settings.steps // 8)
    train_against(
        method, train, settings, rates, meeting=meeting, seed=seed + 1,
        change=moved(settings.shift), progress=progress,
    )  # fmt: skip
    return method


def point_row(
    settings: AlphaImagesSettings, method: AlphaPrivatizer, split: Split, seed: int
) -> tuple[Row, Claims]:
    """What is still read of released test images, by the trained reader and by fresh ones."""
    code, claims = judge_code(
        target_of(method.networks[FILTER], split, seed), settings.code_steps, seed
    )
    attack, test = released_parts(method.networks[FILTER], split, seed)
    row: Row = {
        "seed": seed,
        "digits": accuracy(method.networks["utility"], test.records, test.utility),
        **code,
        "paper_digits": None,
        "paper_attacker": None,
        "squared_error": float((test.records - split.test.records).square().mean()),
        **_read(settings, split, attack, test, seed),
    }
    return row, claims


def _read(
    settings: AlphaImagesSettings, raw: Split, attack: PrivateData, test: PrivateData, seed: int
) -> Row:
    """What fresh networks and attackers, fitted on the attack part, read of the test part."""
    source = torch.Generator().manual_seed(seed + 7)
    net = StudentCnn(check_image(attack.shape), attack.utility_classes, generator=source)
    steps = settings.reading_steps
    reader = learn(net, attack.records, attack.utility, steps=steps, rate=2e-3, seed=seed)
    found = read_all(_attackers(settings, reader), attack, test, seed)
    found |= read_by_rule(rule_of(raw.attack), reader, test, THRESHOLDS, seed)
    return {"digits_fresh": accuracy(reader, test.records, test.utility), **found}


def _attackers(settings: AlphaImagesSettings, reader: nn.Module) -> dict[str, Attacker]:
    rules = [InkFormula(reader, threshold) for threshold in THRESHOLDS]
    found = build_attackers(settings.attackers, settings.attacker_steps)
    return {**found, "formula": FormulaAttacker(rules)}


def _told_digit(records: Tensor, side: Tensor | None) -> Tensor:
    return records.new_zeros(len(records)).long() if side is None else side[:, 0].long()


def draw(rows: Sequence[Row], settings: AlphaImagesSettings, out: Path) -> None:
    """Who reads the code against digits, a line for each mode and order; below it who cannot."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["mode"] is not None:
            name = f"{row['mode']}, α={str(row['point']).partition(':')[0]}"
            for kind, figure in (("code", "code_reader"), ("no weights", "attacker")):
                place = number(row, "digits"), number(row, figure)
                lines.setdefault(f"{name}: {kind}", []).append(place)
    floor = [number(row, "attacker") for row in rows if row["point"] == "digit"]
    plot_lines(
        lines,
        xlabel="digits read (share)",
        ylabel="attacker (balanced accuracy)",
        level=("knows the digit alone", floor[0]),
        path=out / "alpha-images-curve.png",
    )
