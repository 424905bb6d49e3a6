"""Runs the inputs of ``cases.tsv`` and says what came of each, by what its pictures show.

A ``cat`` is drawn as an F, a ``dog`` as a triangle that grows brighter downwards, so that a picture
that was turned, mirrored, inverted, blanked or mislabelled is told from one that is as it was.
"""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedlens.cli import main
from fedlens.client.node.store import is_store, open_store
from fedlens.data.registry import load
from fedlens.foundation.errors import FedlensError

HERE = Path(__file__).parent
ALIKE = 0.5
"""Correlation with the drawing from which on a picture shows it."""
NEARLY = 0.05
REFUSED = "refused"


@dataclass(frozen=True)
class Case:
    """A line of ``cases.tsv``: what is given, and what is to come of it at a node and in a run.

    Outcomes read ``cat 8, dog 8 of 4 | a phrase that is said | another``, with ``of`` before the
    number of users, or ``refused | a phrase``; empty: not tried.
    """

    name: str
    command: str
    node: str
    reader: str
    simulation: str
    looks: str
    """Empty: as drawn; ``inverted``; ``-``: not compared."""
    open: str
    """Which of ``node`` and ``simulation`` are known not to come out so yet."""
    expected: str

    @property
    def folder(self) -> str:
        """Where it lies: ``name+flag`` is ``name`` with other flags."""
        return self.name.partition("+")[0]

    @property
    def words(self) -> list[str]:
        """What stands behind ``fedlens node check`` and ``prepare``, without ``--out``."""
        return [*shlex.split(self.command), "--federation", "federation.toml"]


@dataclass(frozen=True)
class Outcome:
    """What came of a case: what is held (or `REFUSED`), and all that was said."""

    held: str
    said: str
    misdrawn: int = 0

    def meets(self, expected: str) -> str:
        """What is wrong with it; empty where it is as expected."""
        held, *phrases = [one.strip() for one in expected.split(" | ")]
        if self.held != held:
            return f"holds {self.held!r}, not {held!r}: {self.said}"
        if self.misdrawn:
            return f"{self.misdrawn} pictures do not show their class: {self.said}"
        text = " ".join(self.said.split()).casefold()
        silent = [one for one in phrases if one.casefold() not in text]
        return f"does not say {silent}: {self.said}" if silent else ""


def read_cases() -> list[Case]:
    """Every line of the table."""
    with (HERE / "cases.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Case(**{key: value or "" for key, value in row.items()}) for row in rows]


def at_node(case: Case, folder: Path, out: Path) -> Outcome:
    """`fedlens node check`, then `prepare`; what they say together, and what the store holds."""
    with contextlib.chdir(folder):
        checked, said = _ran(["node", "check", *case.words])
        prepared, more = _ran(["node", "prepare", *case.words, "--out", str(out)])
    # what check says, prepare says too: the owner may run either
    lines = f"{said}\n{more}"
    if prepared:
        return Outcome(REFUSED if checked else "check takes what prepare refuses", lines)
    if not is_store(out):
        return Outcome("no store", lines)
    store = open_store(out)
    images, labels = store.arrays["images"], store.arrays["labels"]
    names = store.contract.classes
    held = f"{_counted([names[one] for one in labels])} of {store.facts.users}"
    return Outcome(held, lines, _misdrawn(images, [names[one] for one in labels], case.looks))


def in_simulation(case: Case, folder: Path) -> Outcome:
    """The set as `fedlens simulate` reads it, training and test part together."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.chdir(folder):
            found = load(case.reader)
    except FedlensError as error:
        return Outcome(REFUSED, f"{said.getvalue()} {error}")
    finally:
        logging.getLogger().removeHandler(handler)
    images = np.concatenate([found.train_images, found.test_images])
    numbers = np.concatenate([found.train_labels, found.test_labels])
    labels = [found.class_names[one] for one in numbers]
    empty = sorted(set(found.class_names) - set(labels))
    held = _counted(labels) + "".join(f", {name} 0" for name in empty)
    return Outcome(held, said.getvalue(), _misdrawn(images, labels, case.looks))


def _ran(words: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, said.getvalue()


def _counted(labels: list[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(Counter(labels).items()))


def _misdrawn(images: np.ndarray, labels: list[str], looks: str) -> int:
    """How many of uint8 [n, channels, side, side] do not show what they are labelled."""
    if looks == "-" or set(map(str.casefold, labels)) - {"cat", "dog"}:
        return 0
    grey = np.asarray(images, np.float64).mean(1)
    sign = -1 if looks == "inverted" else 1
    return sum(shown(one * sign) != label.casefold()
               for one, label in zip(grey, labels, strict=True))  # fmt: skip


def shown(grey: np.ndarray) -> str:
    """``cat`` or ``dog`` where [side, side] shows it upright; else what it looks like."""
    if grey.std() < 2:
        return "blank"
    best, what = 0.0, "nothing"
    for name in ("cat", "dog"):
        drawn = np.asarray(
            Image.fromarray(DRAWN[name]).resize(grey.shape[::-1], Image.Resampling.BOX), np.float64
        )
        for turn in range(8):
            seen = np.rot90(drawn if turn < 4 else drawn[:, ::-1], turn)
            alike = float(np.corrcoef(seen.ravel(), grey.ravel())[0, 1])
            for sign in (1, -1):
                upright = NEARLY * ((turn, sign) == (0, 1))  # a drawing of one value has an axis
                if sign * alike + upright > best:
                    best = sign * alike + upright
                    what = name if (turn, sign) == (0, 1) else f"{name} turned {turn} {sign}"
    return what if best > ALIKE else f"nothing ({what} {best:.2f})"


def _drawn() -> dict[str, np.ndarray]:
    cat, dog = np.full((64, 64), 20, np.uint8), np.full((64, 64), 20, np.uint8)
    ramp = np.linspace(153, 214, 32).astype(np.uint8)
    for rows, width in (((12, 20), 32), ((20, 32), 8), ((32, 38), 24), ((38, 56), 8)):
        cat[rows[0] : rows[1], 16 : 16 + width] = ramp[:width]
    for row in range(6, 50):
        dog[row, 6 : 6 + 49 - row] = np.uint8(98 + (row - 6) * 111 / 43)
    return {"cat": cat, "dog": dog}


DRAWN = _drawn()
