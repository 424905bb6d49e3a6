"""Study ``baselines``: what simpler releases tell of a secret, where they keep as much of a use.

For each source of pictures our filter is trained (`alpha-images`, one point) and read. Then each
baseline is turned up until it keeps no more of the use than the filter does, and the secret is read
there, between its last strength above and its first below (*at equal use*, by a straight line):

- ``noise``: independent noise on pixels;
- ``blur``: a Gaussian blur;
- ``components``: the leading principal components of the train part, with noise;
- ``discriminants``: linear discriminants of the use, as few as there are, with noise;
- ``fader``: a FaderNet (Lample et al. 2017), an autoencoder whose code is to carry no attribute,
  with noise on its pixels.

The same readers for all (`fedlens_research.metrics.kernel_reader`), fitted on releases of all
pictures that are not tested on, those for attackers first, of 4,000 at most; what the best of them
reads counts. The filter's code is read
besides, by the likelihood ratio of all known codes, and the better counts, of use and of secret
alike: of no baseline is as much known to who reads it. Above the filters stand the picture itself,
the use alone, and what a reader says of the picture, sent in its place.

Filters learn from the train part and everything is scored on the test part. Where the source names
owners, these are other people. Simulation only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.data.attributes.options import without_path
from fedlens.foundation.tables import Row, number
from fedlens.models.classifiers import check_image
from fedlens.privatizers.attacks.attack_runs import reweighted, shares_of
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.attacks.claims import ONE
from fedlens.privatizers.attacks.controls import ANSWER, TRUE_USE, read_controls
from fedlens.privatizers.attacks.filter_attack import USUAL, attack_code
from fedlens.privatizers.attacks.targets import FilterTarget, target_of
from fedlens.privatizers.channels import channel_of
from fedlens.privatizers.networks.fader import Chained
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import FILTER
from fedlens_research.filters.simple import Blur, Components, Discriminants, PixelNoise
from fedlens_research.framework.charts import plot_lines
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import check_names, parse_points
from fedlens_research.framework.study import SeedTrial
from fedlens_research.metrics.kernel_reader import Labels, Pictures, read

COLUMNS = (
    "data", "sent", "seed", "use", "secret", "low", "high", "lost_points", "above_alone",
    "strength", "reached", "seconds",
)  # fmt: skip
RAW, OURS = "the picture", "filter"
FROM_PICTURE = ("noise", "blur")
"""Those that are the picture itself where nothing is turned up; others begin with less."""
BASELINES = (*FROM_PICTURE, "components", "discriminants", "fader")
LOOKING = "likelihood"
"""Who reads codes."""
FRESH = 104_729
"""Keeps readers and the noise of what they see apart from what filters were trained with."""


@dataclass(frozen=True)
class BaselinesSettings:
    """What ``baselines.toml`` sets."""

    data: tuple[str, ...]  # sources of pictures with a use and a secret
    point: str  # order and weight of our filter, ``alpha:weight``
    # of the filter's training, as in study alpha-images, whose other settings it has
    reading_steps: int
    copying_steps: int
    steps: int
    baselines: tuple[str, ...]  # by name
    noise: tuple[float, ...]  # rising deviations, of pixels in [-1, 1]
    blur: tuple[float, ...]  # rising deviations, in pixels of 32 a side
    # rising deviations from 0, of the components' root mean variance
    components: tuple[float, ...]
    components_kept: int
    discriminants: tuple[float, ...]  # rising deviations from 0, of those within a class
    fader: tuple[float, ...]  # rising deviations of the noise on a FaderNet's pixels, from 0
    fader_steps: int
    fader_weight: float  # of the discriminator against the squared error of pixels
    reader_steps: int  # batches of 64 of the network that reads few pictures

    def __post_init__(self) -> None:
        if not self.data:
            raise StudyError("data: name at least one source of pictures")
        check_names("baselines", self.baselines, BASELINES)
        if len(parse_points([self.point])) != 1:
            raise StudyError(f"point={self.point!r}: give one order and weight")
        for name in self.baselines:
            strengths = getattr(self, name)
            if not strengths or list(strengths) != sorted(set(strengths)):
                raise StudyError(f"{name}={strengths}: give rising strengths, at least one")


SETTINGS = BaselinesSettings


@dataclass(frozen=True)
class Reading:
    """What is read of one release: shares of test records."""

    use: float
    secret: float  # balanced accuracy
    low: float  # of the 95% interval of ``secret``, over owners or records
    high: float

    def row(self) -> Row:
        """Columns."""
        return {"use": self.use, "secret": self.secret, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Found:
    """A baseline at one strength."""

    strength: float
    reading: Reading


def run_seed(settings: BaselinesSettings, trial: SeedTrial) -> list[Row]:
    """Rows of every source: references, our filter, each baseline at its use."""
    return [row for source in settings.data for row in _Source(settings, source, trial).rows()]


@dataclass(frozen=True, eq=False)
class _Source:
    """One source at one seed; read from its files when something is to be measured."""

    settings: BaselinesSettings
    source: str
    trial: SeedTrial

    @cached_property
    def split(self) -> Split:
        """Its parts."""
        return load_private(self.source, self.trial.data_dir, self.trial.seed)

    def rows(self) -> list[Row]:
        """The references first; what is lost and told above them stands in every row."""
        found = self._kept("references", self.references)
        picture = found[0]
        (ours,) = self._kept(OURS, self.filter)
        found.append(ours)
        for name in self.settings.baselines:
            make = partial(self.baseline, name, picture, number(ours, "use"))
            found += self._kept(name, make)
        raw, alone = number(found[0], "use"), number(found[1], "secret")
        head: Row = {"data": without_path(self.source), "seed": self.trial.seed}
        return [{**head, **row, **_beside(row, raw, alone)} for row in found]

    def _kept(self, what: str, make: Callable[[], list[Row]]) -> list[Row]:
        began = time.perf_counter()

        def timed() -> list[Row]:
            return [{**row, "seconds": time.perf_counter() - began} for row in make()]

        rows = self.trial.rows({"data": self.source, "what": what}, timed)
        for row in rows:
            name = without_path(self.source)
            words = f"use {row['use']:.3f}, secret {row['secret']:.3f}"
            self.trial.report(f"{name} seed {self.trial.seed}: {row['sent']}: {words}")
        return rows

    def references(self) -> list[Row]:
        """The picture, the use alone, and the reader's answer in place of the picture."""
        target = target_of(nn.Identity(), self.split, FRESH + self.trial.seed)
        reading, answers = self.read_pictures(target.known, target.test)
        controls = read_controls(target.known, target.test, target.seed, answers=answers)
        rows: list[Row] = [{"sent": RAW, **reading.row()}]
        for name in (TRUE_USE, ANSWER):
            (one,) = (control for control in controls if control.sent == name)
            rows.append(
                {"sent": name, "use": one.use, "secret": one.secret, "low": one.low,
                 "high": one.high}
            )  # fmt: skip
        return rows

    def filter(self) -> list[Row]:
        """Ours."""
        return [{"sent": OURS, **self.read(self.trained()).row()}]

    def trained(self) -> nn.Module:
        """Our filter, by the recipe of study ``alpha-images``."""
        from fedlens_research.papers import ALPHA_IMAGES
        from fedlens_research.papers.alpha_images import serving_start, train_point

        own, train, seed = self.settings, self.split.train, self.trial.seed
        changes = {name: getattr(own, name) for name in ("reading_steps", "copying_steps", "steps")}
        recipe = ALPHA_IMAGES.settings(quick=False, changes=changes)
        ((alpha, weight),) = parse_points([own.point])
        start = serving_start(recipe, train, seed)
        method = train_point(recipe, train, start, "loss", alpha, weight, seed)
        return method.networks[FILTER].eval()

    def read(self, filter_: nn.Module) -> Reading:
        """Use and secret of what a filter releases, by whoever reads most of each."""
        target = target_of(filter_, self.split, FRESH + self.trial.seed)
        known, test = (
            target.sent(target.known, target.seed),
            target.sent(target.test, target.seed + 1),
        )
        found, _ = self.read_pictures(known, test)
        return found if channel_of(filter_) is None else _better(found, read_code(target))

    def read_pictures(self, known: PrivateData, test: PrivateData) -> tuple[Reading, Tensor]:
        """Use and secret that a fresh reader finds; and its answers to the use."""
        seed = FRESH + self.trial.seed
        labels = [
            Labels(known.utility, known.utility_classes),
            Labels(known.sensitive, known.sensitive_classes),
        ]
        pictures = Pictures(known.records, known.owners)
        used, hidden = read(pictures, labels, test.records, self.settings.reader_steps, seed)
        shares = shares_of(known)
        fair = (reweighted(one.double().log(), shares).argmax(1) for one in hidden)
        secret = max(balanced_accuracy(one, test, seed) for one in fair)
        best = max((one.argmax(1) for one in used), key=lambda one: _right(one, test))
        return Reading(_right(best, test), *secret), best

    def baseline(self, name: str, picture: Row, use: float) -> list[Row]:
        """One baseline, turned up from the picture as far as brings its use to that of ours."""
        build = self.builder(name)
        numbers = (number(picture, key) for key in ("use", "secret", "low", "high"))
        path = [Found(0.0, Reading(*numbers))] if name in FROM_PICTURE else []
        for strength in getattr(self.settings, name):
            path.append(Found(strength, self.read(build(strength))))
            if path[-1].reading.use <= use:
                break
        return [{"sent": name, **at_use(path, use)}]

    def builder(self, name: str) -> Callable[[float], nn.Module]:
        """What makes the baseline at a strength."""
        train, own = self.split.train, self.settings
        shape = check_image(train.shape)
        if name == "noise":
            return lambda strength: PixelNoise(shape, strength)
        if name == "blur":
            unit = shape[1] / 32
            return lambda strength: Blur(unit * strength, train.low, train.high)
        if name == "components":
            kept = min(own.components_kept, len(train) - 1)
            return lambda strength: Components(train.records, kept, strength)
        if name == "discriminants":
            use = train.utility, train.utility_classes
            return lambda strength: Discriminants(train.records, *use, strength)
        fader = self.fader()
        return lambda strength: Chained(fader, PixelNoise(shape, strength))

    def fader(self) -> nn.Module:
        """A trained FaderNet."""
        from fedlens_research.papers import ATTRIBUTES
        from fedlens_research.papers.attributes_training import train_fader

        own = self.settings
        changes: dict[str, Any] = {"fader_steps": own.fader_steps, "fader_weight": own.fader_weight}
        recipe = ATTRIBUTES.settings(quick=False, changes=changes)
        return train_fader(recipe, self.split.train, self.trial.seed).networks[FILTER].eval()


def read_code(target: FilterTarget) -> Reading:
    """What the likelihood ratio reads of the code, of the secret and of the use."""
    swapped = replace(target, known=_swapped(target.known), test=_swapped(target.test))
    secret = attack_code(target, LOOKING, ONE, USUAL)
    use = attack_code(swapped, LOOKING, ONE, USUAL).accuracy
    return Reading(use, secret.balanced, secret.low, secret.high)


def _right(answers: Tensor, test: PrivateData) -> float:
    return float((answers == test.utility).double().mean())


def _better(one: Reading, two: Reading) -> Reading:
    secret = max(one, two, key=lambda each: each.secret)
    return replace(secret, use=max(one.use, two.use))


def _swapped(data: PrivateData) -> PrivateData:
    """The same records with the use in the secret's place, for who reads secrets."""
    return replace(
        data,
        utility=data.sensitive,
        sensitive=data.utility,
        utility_classes=data.sensitive_classes,
        sensitive_classes=data.utility_classes,
    )


def at_use(path: Sequence[Found], use: float) -> Row:
    """Where a path of rising strengths comes down to a use: on a line between two readings.

    ``reached`` is False where it never does, or keeps less from the start: then its last or first
    reading is given, at a use of its own.
    """
    if path[0].reading.use < use:
        return {**path[0].reading.row(), "strength": path[0].strength, "reached": False}
    for above, below in pairwise(path):
        if below.reading.use <= use:
            span = above.reading.use - below.reading.use
            share = min(1.0, max(0.0, (above.reading.use - use) / span)) if span > 0 else 1.0
            ends = above.reading.row(), below.reading.row()
            row: Row = {
                key: _between(number(ends[0], key), number(ends[1], key), share) for key in ends[0]
            }
            strength = _between(above.strength, below.strength, share)
            return {**row, "strength": strength, "reached": True}
    return {**path[-1].reading.row(), "strength": path[-1].strength, "reached": False}


def _between(one: float, two: float, share: float) -> float:
    return one + share * (two - one)


def _beside(row: Row, raw_use: float, alone: float) -> Row:
    """What is lost of the use, in points, and what is told above who knows the use alone."""
    use, secret = number(row, "use"), number(row, "secret")
    return {"lost_points": 100 * (raw_use - use), "above_alone": secret - alone}


def draw(rows: Sequence[Row], settings: BaselinesSettings, out: Path) -> None:
    """What each release tells against the use that it keeps, a mark a source and seed."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        place = number(row, "lost_points"), number(row, "above_alone")
        lines.setdefault(str(row["sent"]), []).append(place)
    plot_lines(
        lines,
        xlabel="use that is lost (points)",
        ylabel="secret above who knows the use alone",
        level=("knows the use alone", 0.0),
        path=out / "baselines.png",
    )
