"""What a node holds, for its owner alone: counts and pictures of real people, which stay here."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fedlens.client.node.store import LEFT_OUT, LOOKS, open_store
from fedlens.data.formats.left_out import EXAMPLES
from fedlens.foundation.unlabelled import NO_CLASS, UNLABELLED
from fedlens.models.shapes import ImageShape

ROWS = 65_536
EACH, MOST_CLASSES = 8, 40
"""Pictures of a class on the sheet, and classes."""
GAP, LEAST_SIDE = 2, 48
FONT = "mpl-data/fonts/ttf/DejaVuSans.ttf"
TEXT, MARGIN, WIDEST = 14, 6, 220
"""Pixels of the names' letters, around them, and of their column at most."""


@dataclass(frozen=True)
class NodeReport:
    """What a store holds and what was left out of it.

    Attributes:
        records: that it holds.
        users: enrolled.
        shape: channels, height, width of an image.
        classes: records by class; empty where they have no labels.
        held: records a user holds: least, median, most.
        left_out: records that were left out, by why.
        examples: where the first few of them stand, by why.
        notes: further lines for the owner.
        looks: the sheet of some pictures of each class, a PNG; empty where there is none.
    """

    records: int
    users: int
    shape: tuple[int, int, int]
    classes: dict[str, int]
    held: tuple[int, int, int]
    left_out: dict[str, int]
    examples: dict[str, list[str]]
    notes: list[str]
    looks: bytes = field(default=b"", repr=False)

    def to_json(self) -> dict[str, Any]:
        """As one JSON object, without the pictures."""
        found = asdict(self)
        del found["looks"]
        return found

    def faults(self) -> list[str]:
        """Lines on what the owner did not ask to be left out."""
        return [self._left_out(why) for why in self.examples]

    def _left_out(self, why: str) -> str:
        where, count = self.examples.get(why, []), self.left_out[why]
        more = ", ..." if len(where) < count else ""
        return f"left out, {why}: {count}" + (f": {', '.join(where)}{more}" if where else "")

    def lines(self) -> list[str]:
        """In words, a line each."""
        channels, side, _ = self.shape
        colour = "grey" if channels == 1 else "colour"
        least, median, most = self.held
        found = [
            f"{self.records} records of {self.users} users, {side} x {side} {colour}; a user holds "
            f"{least} to {most}, half of them at most {median}",
            "records by class: " + ", ".join(f"{k} {n}" for k, n in self.classes.items())
            if self.classes
            else f"records are {UNLABELLED}",
        ]
        found += [self._left_out(why) for why in self.left_out]
        if self.users == 1 and self.records > 1:
            found.append("all records are of one user: is the user's column the right one?")
        empty = [name for name, count in self.classes.items() if not count]
        if empty:
            few = ", ".join(empty[:10]) + (", ..." if len(empty) > 10 else "")
            found.append(f"no record of {few}: that is no fault, others may have some")
        return [*found, *self.notes]


def report_on(
    path: Path,
    left_out: Mapping[str, int] | None = None,
    examples: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
) -> NodeReport:
    """What a store holds, counted a part at a time; what was left out, as its list says.

    Raises:
        NodeDataError: as `open_store`.
    """
    store = open_store(path)
    labels, offsets = store.arrays["labels"], store.arrays["offsets"]
    names = store.contract.classes
    counts = np.zeros(len(names), np.int64)
    sheet = path / LOOKS
    if left_out is None:
        left_out, examples = _listed(path / LEFT_OUT)
    for start in range(0, len(labels), ROWS):
        part = labels[start : start + ROWS]
        counts += np.bincount(part[part != NO_CLASS], minlength=len(names))
    bare = len(labels) - int(counts.sum())
    if bare:
        notes = [*notes, f"{bare} records have no label"]
    held = np.diff(offsets) if len(offsets) > 1 else np.zeros(1, np.int64)
    return NodeReport(
        records=store.facts.records,
        users=store.facts.users,
        shape=store.contract.shape,
        classes={
            name: int(count)
            for name, count in zip(names, counts, strict=True)
            if not store.contract.unlabelled
        },
        held=(int(held.min()), int(np.median(held)), int(held.max())),
        left_out=dict(left_out or {}),
        examples={why: list(where) for why, where in (examples or {}).items()},
        notes=list(notes),
        looks=sheet.read_bytes() if sheet.is_file() else b"",
    )


def _listed(path: Path) -> tuple[Counter[str], dict[str, list[str]]]:
    """Counts of a store's list of what was left out, and places of the first few, by why."""
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    with suppress(OSError, UnicodeDecodeError, csv.Error), path.open(encoding="utf-8") as file:
        for row in csv.reader(file):
            if len(row) == 2 and row != ["where", "why"]:
                counts[row[1]] += 1
                if counts[row[1]] <= EXAMPLES:
                    examples.setdefault(row[1], []).append(row[0])
    return counts, examples


class Looks:
    """A sheet of the first pictures of each class beside its name, as the federation has them.

    Of unlabelled ones as many rows as fill a square, without names.
    """

    def __init__(self, classes: Sequence[str], shape: ImageShape) -> None:
        self._unlabelled = tuple(classes) == (UNLABELLED,)
        self._names = [] if self._unlabelled else list(classes[:MOST_CLASSES])
        self._rows = EACH if self._unlabelled else len(self._names)
        self._shape = shape
        self._kept: dict[int, list[NDArray[np.uint8]]] = {}

    def add(self, label: int, pixels: NDArray[np.uint8]) -> None:
        """Keep a picture uint8 [channels, side, side], if its class has room."""
        if self._unlabelled:
            label = next((row for row in range(EACH) if len(self._kept.get(row, ())) < EACH), EACH)
        if 0 <= label < self._rows and len(self._kept.setdefault(label, [])) < EACH:
            self._kept[label].append(pixels)

    def png(self) -> bytes:
        """The sheet; pixels are repeated, never smoothed."""
        times = max(1, -(-LEAST_SIDE // self._shape[1]))
        side = times * self._shape[1] + GAP
        sheet = np.full((self._rows * side, EACH * side, 3), 128, np.uint8)
        for label, pictures in self._kept.items():
            for place, pixels in enumerate(pictures):
                large = np.repeat(np.repeat(np.moveaxis(pixels, 0, 2), times, 0), times, 1)
                top, left = label * side, place * side
                sheet[top : top + side - GAP, left : left + side - GAP] = large
        file = io.BytesIO()
        drawn = Image.fromarray(sheet)
        (_beside(self._names, drawn, side) if self._names else drawn).save(file, "PNG")
        return file.getvalue()


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """One with the letters of most alphabets, which comes with matplotlib; else Pillow's own."""
    found = find_spec("matplotlib")
    for place in (found.submodule_search_locations or ()) if found else ():
        with suppress(OSError):
            return ImageFont.truetype(str(Path(place) / FONT), TEXT)
    return ImageFont.load_default(TEXT)


def _beside(names: Sequence[str], sheet: Image.Image, side: int) -> Image.Image:
    """The sheet with a column of names at its left, each number and name at its row."""
    font = _font()
    said = [f"{number} {name}" for number, name in enumerate(names)]
    wide = min(WIDEST, int(max(font.getlength(one) for one in said)) + 2 * MARGIN)
    found = Image.new("RGB", (wide + sheet.width, sheet.height), "white")
    found.paste(sheet, (wide, 0))
    draw = ImageDraw.Draw(found)
    for number, one in enumerate(said):
        while font.getlength(one) > wide - 2 * MARGIN:
            one = f"{one[:-2]}…"
        draw.text((MARGIN, number * side + (side - GAP) // 2), one, "black", font, "lm")
    return found
