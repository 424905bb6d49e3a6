"""A source's records as a simulation's data, or as filters': ``hf:PATH,label=COLUMN,side=32``.

Records are looked at once, then decoded into nameless files, so that no more than one is in memory.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.dataset import Dataset, DatasetError, build_dataset
from fedlens.data.formats.decoding import form_of, pixels_of
from fedlens.data.formats.formats import LabelledRecord, RecordSource, open_source
from fedlens.data.formats.records import (
    OVERSIZED,
    TEST,
    TRAIN,
    VALIDATION,
    SourceError,
    SourceRecord,
    UnusableRecord,
    inside,
)
from fedlens.data.labelled.labels import (
    TEST_PART,
    OwnRecords,
    deal,
    left_out,
    numbered,
    owner_number,
    parts_of,
    value_order,
)
from fedlens.data.labelled.pictures import (
    OversizedPictureError,
    UnreadablePictureError,
    check_side,
    resizing_note,
    usual_side,
)
from fedlens.data.registry import DATASETS
from fedlens.models.shapes import from_pixels
from fedlens.privatizers.private_data import Split

SYNONYMS = {"utility": "label", "owner": "user", "file": "image"}
"""Options under the names that they have where filters are spoken of."""
DEFAULTS = {
    **dict.fromkeys(("label", "user", "image", "sensitive", "side", "manifest", *SYNONYMS), ""),
    "colour": "auto",
    "limit": "0",
}
COLOURS = {"auto": 0, "grey": 1, "rgb": 3}
MOST_CLASSES = 1000
PRIVATE_LIMIT = "20000"
"""Records of filters are in memory as float32."""
TEST_SHARE = 6
"""Without a test part about one user in six is for the test; without users, one record."""
UNREADABLE = "as no readable picture"
SHOWN, EXAMPLES = 3, 5
"""Sizes that are looked at for a usual one, and places of what is left out that are named."""
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class _Asked:
    """What is asked for: records of a source, and how they are brought to one form."""

    source: RecordSource
    options: Options
    sensitive: str
    """Column of the private attribute; empty for none."""
    parts: tuple[str, ...]
    """Those that are taken."""

    def records(self) -> Iterator[LabelledRecord | UnusableRecord]:
        """Records of these parts that have all values, and those that are unusable."""
        for found in self.source.records():
            if isinstance(found, UnusableRecord):
                yield found
            elif (found.part or TRAIN) in self.parts:
                yield (
                    found
                    if self.private_value(found) or not self.sensitive
                    else UnusableRecord(found.where, f"no value in {self.sensitive}")
                )

    def private_value(self, found: LabelledRecord) -> str:
        """The value of a record's private attribute; empty for none."""
        if self.sensitive and self.sensitive not in found.values:
            raise SourceError(
                f"{self.source.path}: has no column {self.sensitive!r}, which sensitive= names; "
                f"there are {', '.join(sorted(found.values))}"
            )
        return found.values.get(self.sensitive, "").strip()


@dataclass(frozen=True)
class _Form:
    """What a first look says of the records."""

    classes: tuple[str, ...]
    channels: int
    side: int
    has_test: bool
    last: dict[str, int]
    """By part, the largest hash of a record that is taken."""
    notes: list[str]


def _nameless() -> IO[bytes]:
    return tempfile.TemporaryFile()


@dataclass
class _Group:
    """Records that go together: pixels in a nameless file, the rest beside."""

    pixels: IO[bytes] = field(default_factory=_nameless)
    labels: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    sensitive: list[str] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def images(self, form: _Form) -> NDArray[np.uint8]:
        """uint8 [n, channels, side, side], on the disk."""
        shape = (len(self.labels), form.channels, form.side, form.side)
        self.pixels.flush()
        if not len(self.labels):
            return np.zeros(shape, np.uint8)
        return np.memmap(self.pixels, np.uint8, "r", shape=shape)


def load_records(kind: str, argument: str, *, labelled: bool = True) -> Dataset:
    """A source's records as a simulation's data.

    Pictures are cut to their middle square and scaled to ``side`` (their own, where all have one
    that networks take, else 32); they are grey where all are, unless ``colour`` says otherwise.
    What cannot be decoded is left out, named and counted. Records of a part ``test`` are for the
    test; without any a hash of the user (or of the record's place) takes one in six, and where
    there is a column ``sensitive``, those on which filters are scored at seed 0.

    Args:
        kind: the format's name.
        argument: ``PATH,option=value``.
        labelled: whether records need labels.

    Raises:
        DatasetError: the source cannot be read, has no record or over 1,000 classes.
    """
    asked = _asked(kind, argument, {}, (TRAIN, TEST), ())
    if not labelled:
        asked = replace(asked, source=replace(asked.source, needs_label=False))
    form = _looked_at(asked)

    def part(found: LabelledRecord, key: bytes) -> str:
        if form.has_test:
            return TEST if found.part == TEST else TRAIN
        if asked.sensitive:
            return TEST if parts_of([key], 0)[0] == TEST_PART else TRAIN
        return TRAIN if owner_number(found.user or found.where) % TEST_SHARE else TEST

    groups, notes = _decoded(asked, form, part)
    train, test = (groups.get(name, _Group()) for name in (TRAIN, TEST))
    for note in notes:
        logging.getLogger(__name__).warning("%s: %s", asked.options.path, note)
    where = asked.options.path
    numbers = {name: number for number, name in enumerate(form.classes)}
    labels = [np.array([numbers[one] for one in group.labels], np.int64) for group in (train, test)]
    users = np.array([owner_number(one) for one in train.users], np.int64)
    return build_dataset(
        f"{kind}:{where.name}",
        where,
        (train.images(form), labels[0]),
        (test.images(form), labels[1]),
        class_names=form.classes,
        attribution=DATASETS[kind].attribution or f"your own records, from {where.name}",
        user_ids=users if asked.source.needs_user else None,
        sensitive=_sensitive(asked, train, test) if asked.sensitive else None,
    )


def split_records(name: str, seed: int) -> Split:
    """A source's records with a private attribute, in three parts.

    Published parts are kept: training records for filters, validation records for attackers (half
    of the training records, where there are none), test records for scoring. Others are dealt by
    owner or record.

    Args:
        name: ``kind:PATH,sensitive=COLUMN,option=value``.
        seed: of how they are dealt.

    Raises:
        DatasetError: as above, or an attribute has one value, or a part lacks one.
    """
    kind, _, argument = name.partition(":")
    chosen = {"limit": PRIVATE_LIMIT, **DATASETS[kind].columns}
    asked = _asked(kind, argument, chosen, (TRAIN, VALIDATION, TEST), ("sensitive",))
    form = _looked_at(asked)
    groups, notes = _decoded(asked, form, lambda found, _: found.part if form.has_test else "")
    order = [one for one in ("", TRAIN, VALIDATION, TEST) if one in groups]
    every = [groups[one] for one in order]
    users = [user for group in every for user in group.users]
    own = OwnRecords(
        name=name,
        path=asked.options.path,
        records=from_pixels(np.concatenate([group.images(form) for group in every])),
        utility=[label for group in every for label in group.labels],
        sensitive=[value for group in every for value in group.sensitive],
        owners=users if asked.source.needs_user else None,
        keys=[key for group in every for key in group.keys],
        notes=notes,
    )
    parts = [one for one in order for _ in groups[one].labels] if form.has_test else None
    return deal(own, seed, None if parts is None else _published(parts, seed))


def _published(parts: list[str], seed: int) -> NDArray[np.int64]:
    """For filters (0), attackers (1) or scoring (2), by the parts of who published them."""
    names = np.array(parts)
    found = np.select([names == TEST, names == VALIDATION], [TEST_PART, 1], 0)
    if VALIDATION not in parts:
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(names != TEST))
        found[rows[len(rows) // 2 :]] = 1
    return found.astype(np.int64)


def _asked(
    kind: str,
    argument: str,
    chosen: dict[str, str],
    parts: tuple[str, ...],
    needed: tuple[str, ...],
) -> _Asked:
    layout = DATASETS[kind].format
    options = parse_options(
        kind, _on_disk(layout.found if layout else None, argument), {**DEFAULTS, **chosen}, needed
    )
    options.one_of("colour", COLOURS)
    if table := options.values["manifest"]:
        options = replace(options, path=inside(options.path, table, f"manifest={table}"))
    named = {name: options.values[one] for one, name in SYNONYMS.items() if options.values[one]}
    options = replace(options, values={**options.values, **named})
    column = options.values
    source = open_source(
        options.path, kind, label=column["label"], user=column["user"], image=column["image"]
    )
    source = replace(source, needs_user=bool(column["user"]) or _knows_users(source))
    return _Asked(source, options, column["sensitive"], parts)


def _on_disk(find: Callable[[str], Path] | None, argument: str) -> str:
    """The path in place of a name that is none; what follows stays."""
    name, comma, rest = argument.partition(",")
    if find is None or Path(name).expanduser().exists() or not _ON_HUB.fullmatch(name):
        return argument
    return f"{find(name)}{comma}{rest}"


def _knows_users(source: RecordSource) -> bool:
    """Whether the first record has a column that the format takes for the user."""
    for found in source.format.records(source.path, source.columns):
        if isinstance(found, SourceRecord):
            return any(name in found.values for name in source.format.users)
    return False


def _looked_at(asked: _Asked) -> _Form:
    options, path = asked.options, asked.source.path
    last, notes = _limits(asked)
    sizes: set[tuple[int, int]] = set()
    classes: set[str] = set()
    grey, has_test = True, False
    for found in asked.records():
        if isinstance(found, UnusableRecord) or not _within(found, last):
            continue
        has_test |= found.part == TEST
        try:
            is_grey, size = form_of(found.picture, found.where)
        except (UnreadablePictureError, OversizedPictureError):
            continue  # counted where it is decoded
        grey &= is_grey
        classes.add(found.label)
        sizes = sizes | {size} if len(sizes) < SHOWN else sizes
        if len(classes) > MOST_CLASSES:
            raise DatasetError(
                f"{path}: has over {MOST_CLASSES} labels, such as {found.label!r}; name "
                "another column with label="
            )
    if not sizes:
        raise SourceError(f"{path}: has no readable picture; give some")
    wanted = options.values["side"] and options.number("side", 1)
    side = check_side(asked.source.kind, int(wanted or usual_side(sizes)))
    channels = COLOURS[options.values["colour"]] or (1 if grey else 3)
    fixed = asked.source.format.classes
    names = (
        fixed
        if asked.source.needs_label and classes <= set(fixed)
        else tuple(sorted(classes, key=value_order))
    )
    return _Form(names, channels, side, has_test, last, [*notes, *resizing_note(sizes, side)])


def _limits(asked: _Asked) -> tuple[dict[str, int], list[str]]:
    """By part, the largest hash of as many records as are asked for, and notes; none of all.

    A hash of where they lie chooses, so that they are from everywhere.
    """
    limit = asked.options.number("limit", 0)
    if not limit:
        return {}, []
    hashes: dict[str, array[int]] = {}
    for found in asked.records():
        if isinstance(found, LabelledRecord):
            hashes.setdefault(found.part, array("q")).append(owner_number(found.where))
    count = sum(map(len, hashes.values()))
    taken = sum(min(limit, len(one)) for one in hashes.values())
    last = {
        part: sorted(one)[limit - 1] if len(one) > limit else max(one)
        for part, one in hashes.items()
    }
    note = f"{taken} of {count} pictures are used; limit= takes more"
    return last, [note] if taken < count else []


def _within(found: LabelledRecord, last: dict[str, int]) -> bool:
    return not last or owner_number(found.where) <= last[found.part]


def _decoded(
    asked: _Asked, form: _Form, part: Callable[[LabelledRecord, bytes], str]
) -> tuple[dict[str, _Group], list[str]]:
    """Records by the group that ``part`` says of a record and its key, and notes on what is not."""
    groups: dict[str, _Group] = {}
    lacking: Counter[str] = Counter()
    few: dict[str, list[str]] = {}

    def leave(where: str, why: str) -> None:
        lacking[why] += 1
        if lacking[why] <= EXAMPLES:
            few.setdefault(why, []).append(where)

    for found in asked.records():
        if isinstance(found, UnusableRecord):
            leave(found.where, found.why)
        elif _within(found, form.last):
            try:
                pixels = pixels_of(found.picture, found.where, form.side, form.channels).tobytes()
            except UnreadablePictureError:
                leave(found.where, UNREADABLE)
                continue
            except OversizedPictureError:
                leave(found.where, OVERSIZED)
                continue
            key = found.user.encode() or hashlib.sha256(pixels).digest()
            _add(groups.setdefault(part(found, key), _Group()), asked, found, key, pixels)
    notes = list(form.notes)
    for why, count in lacking.items():
        left_out(notes, few[why], why, count)
    return groups, notes


def _add(group: _Group, asked: _Asked, found: LabelledRecord, key: bytes, pixels: bytes) -> None:
    group.pixels.write(pixels)
    group.labels.append(found.label)
    group.users.append(found.user)
    if asked.sensitive:
        group.sensitive.append(asked.private_value(found))
        group.keys.append(key)


def _sensitive(
    asked: _Asked, train: _Group, test: _Group
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    names, found = numbered(asked.source.path, [*train.sensitive, *test.sensitive], "sensitive")
    if len(names) < 2:
        raise SourceError(f"{asked.source.path}: sensitive has one value only, {names[0]!r}")
    return found[: len(train.sensitive)], found[len(train.sensitive) :]
