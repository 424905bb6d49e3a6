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
from fedlens.data.formats.dealing import Dealing, Scoring
from fedlens.data.formats.decoding import form_of, pixels_of
from fedlens.data.formats.formats import LabelledRecord, RecordSource, open_source
from fedlens.data.formats.label_names import (
    LEAVE_OUT,
    check_one_class,
    notes_on,
    one_name_each,
    renamed,
    renaming,
)
from fedlens.data.formats.left_out import LeftOut, digest_of, note_copies
from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    VALIDATION,
    SourceError,
    UnusableRecord,
    inside,
)
from fedlens.data.labelled.labels import (
    OwnRecords,
    deal,
    numbered,
    owner_number,
    published_parts,
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
from fedlens.foundation.unlabelled import NO_CLASS
from fedlens.models.shapes import from_pixels
from fedlens.privatizers.private_data import Split

SYNONYMS = {"utility": "label", "owner": "user", "file": "image"}
"""Options under the names that they have where filters are spoken of."""
DEFAULTS = {
    **dict.fromkeys(("label", "user", "image", "sensitive", "side", "manifest", *SYNONYMS), ""),
    "map": "",
    "user-from-name": "",
    "frames": "first",
    "colour": "auto",
    "limit": "0",
}
FRAMES = {"first": 0, "each": 1}
COLOURS = {"auto": 0, "grey": 1, "rgb": 3}
MOST_CLASSES = 1000
PRIVATE_LIMIT = "20000"
"""Records of filters are in memory as float32."""
SHOWN = 3
"""Sizes that are looked at for a usual one."""
SHOWN_NAMES = 6
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
    tally: LeftOut
    """Of what is left out, and noticed."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Labels by their other name, or `LEAVE_OUT`."""

    def records(self) -> Iterator[LabelledRecord | UnusableRecord]:
        """Records of these parts that have all values, and those that are unusable."""
        for found in self.source.records():
            if (found.part or TRAIN) not in self.parts:
                yield UnusableRecord(found.where, f"of the part {found.part!r}", quiet=True)
            elif isinstance(found, UnusableRecord):
                yield found
            elif self.sensitive and not self.private_value(found):
                yield UnusableRecord(found.where, f"no value in {self.sensitive}")
            else:
                yield self._renamed(found)

    def _renamed(self, found: LabelledRecord) -> LabelledRecord | UnusableRecord:
        """A record under its label's other name."""
        name = renamed(found.label, self.renamed)
        if name == LEAVE_OUT:
            return UnusableRecord(found.where, f"label {found.label!r}, as map= says")
        return found if name == found.label else replace(found, label=name)

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

    fixed: tuple[str, ...]
    """Names of classes that the format fixes."""
    names: dict[str, str]
    """The class of each label: one that is only written otherwise is the same."""
    channels: int
    side: int
    parts: set[str]
    """Those that records are of."""
    last: dict[str, int]
    """By part, the largest hash of a record that is taken."""
    dealing: Dealing
    notes: list[str]

    def taken(self, labels: set[str]) -> tuple[str, ...]:
        """Classes in order: those that records have, or all that the format fixes."""
        return self.fixed if labels <= set(self.fixed) else tuple(sorted(labels, key=value_order))


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
    digests: list[int] = field(default_factory=list)

    def images(self, form: _Form) -> NDArray[np.uint8]:
        """uint8 [n, channels, side, side], on the disk."""
        shape = (len(self.labels), form.channels, form.side, form.side)
        self.pixels.flush()
        if not len(self.labels):
            return np.zeros(shape, np.uint8)
        return np.memmap(self.pixels, np.uint8, "r", shape=shape)


def load_records(
    kind: str, argument: str, *, labelled: bool = True, partly: bool = False
) -> Dataset:
    """A source's records as a simulation's data.

    Pictures are cut to their middle square and scaled to ``side`` (their own, where all have one
    that networks take, else 32); they are grey where all are, unless ``colour`` says otherwise.
    What cannot be decoded is left out, named and counted. Records of a part ``test`` are for the
    test, and those of a validation part are left out; without a test part they take its place.
    Without either a hash of the user (or of the record's place) takes one in six of those who have
    labels, one at least, and where there is a column ``sensitive``, those on which filters are
    scored at seed 0.

    Args:
        kind: the format's name.
        argument: ``PATH,option=value``.
        labelled: whether records need labels.
        partly: whether training records may lack one; those of the test without one are left out.

    Raises:
        DatasetError: the source cannot be read, has no record or over 1,000 classes.
    """
    asked = _asked(kind, argument, {}, (TRAIN, VALIDATION, TEST), ())
    needs = labelled and asked.source.needs_label
    asked = replace(asked, source=replace(asked.source, needs_label=needs, partly=partly))
    form = _looked_at(asked)
    test_part = next((one for one in (TEST, VALIDATION) if one in form.parts), "")
    if test_part:
        asked = replace(asked, parts=(TRAIN, test_part))
    if test_part == VALIDATION:
        asked.tally.tell("there is no test part: the validation part takes its place")

    if asked.source.needs_user and not (test_part or asked.sensitive):
        form.dealing.check(asked.source.path)

    scoring = _scoring(asked)

    def part(found: LabelledRecord, key: bytes) -> str:
        if test_part:
            return TEST if found.part == test_part else TRAIN
        if asked.sensitive:
            return TEST if scoring.scores(key) else TRAIN
        return form.dealing.part(found.user or found.where)

    groups, notes = _decoded(asked, form, part)
    train, test = (groups.get(name, _Group()) for name in (TRAIN, TEST))
    if not train.labels:
        raise SourceError(
            f"{asked.source.path}: has no record to train on, and {len(test.labels)} for the test"
            f"{asked.tally.why_none()}; name the folder or file of the training part"
        )
    for note in [*notes, *(notes_on(train.labels) if needs else ())]:
        logging.getLogger(__name__).warning("%s: %s", asked.options.path, note)
    where = asked.options.path
    classes = form.taken({*train.labels, *test.labels} - {""})
    numbers = {name: number for number, name in enumerate(classes)} | {"": NO_CLASS}
    labels = [np.array([numbers[one] for one in group.labels], np.int64) for group in (train, test)]
    users = np.array([owner_number(one) for one in train.users], np.int64)
    return build_dataset(
        f"{kind}:{where.name}",
        where,
        (train.images(form), labels[0]),
        (test.images(form), labels[1]),
        class_names=classes,
        declared={*classes} <= {*form.fixed, *asked.renamed.values()},
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
    has_test = TEST in form.parts
    groups, notes = _decoded(asked, form, lambda found, _: found.part if has_test else "")
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
    if has_test:
        parts = published_parts([one for one in order for _ in groups[one].labels], seed)
    else:
        parts = _scoring(asked).parts(own.keys, seed)
    return deal(own, seed, parts, by="its publisher" if has_test else "")


def _scoring(asked: _Asked) -> Scoring:
    scoring = Scoring()
    if not (asked.sensitive and asked.source.needs_user):
        return scoring
    for found in replace(asked, source=replace(asked.source, needs_label=False)).records():
        if isinstance(found, LabelledRecord):
            scoring.people.add(found.user.encode())
        if scoring.many:
            break
    return scoring


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
    options.one_of("frames", FRAMES)
    tally = LeftOut()
    source = open_source(
        options.path,
        kind,
        label=column["label"],
        user=column["user"],
        image=column["image"],
        user_from_name=column["user-from-name"],
        each_frame=column["frames"] == "each",
    )
    names = renaming(column["map"])
    source = replace(source, columns=replace(source.columns, told=tally.tell), mapped=names)
    known = bool(column["user"] or source.user_from_name) or source.knows_users()
    source = replace(source, needs_user=known)
    return _Asked(source, options, column["sensitive"], parts, tally, names)


def _on_disk(find: Callable[[str], Path] | None, argument: str) -> str:
    """The path in place of a name that is none; what follows stays."""
    name, comma, rest = argument.partition(",")
    if find is None or Path(name).expanduser().exists() or not _ON_HUB.fullmatch(name):
        return argument
    return f"{find(name)}{comma}{rest}"


def _looked_at(asked: _Asked) -> _Form:
    options, path = asked.options, asked.source.path
    last, notes = _limits(asked)
    sizes: set[tuple[int, int]] = set()
    labels: Counter[str] = Counter()
    grey, parts, dealing, seen = True, set[str](), Dealing(), LeftOut()
    for found in asked.records():
        if isinstance(found, UnusableRecord):
            seen.leave_record(found)
            continue
        if not _within(found, last):
            continue
        try:
            is_grey, size = form_of(found.picture, found.where)
        except (UnreadablePictureError, OversizedPictureError) as error:
            seen.leave(found.where, error.why)  # told where it is decoded
            continue
        dealing.meet(found.user or found.where, labelled=bool(found.label))
        grey &= is_grey
        parts.add(found.part)
        labels[found.label] += 1
        sizes = sizes | {size} if len(sizes) < SHOWN else sizes
        if len(labels) > MOST_CLASSES:
            raise DatasetError(
                f"{path}: has over {MOST_CLASSES} labels, such as {found.label!r}; name "
                "another column with label="
            )
    if not sizes:
        raise SourceError(f"{path}: has no readable picture{seen.why_none()}; give some")
    wanted = options.values["side"] and options.number("side", 1)
    side = check_side(asked.source.kind, int(wanted or usual_side(sizes)))
    channels = COLOURS[options.values["colour"]] or (1 if grey else 3)
    fixed = asked.source.format.classes
    fixed = fixed if asked.source.needs_label else ()
    names = {one: one for one in labels}
    labels.pop("", None)  # of records without one
    if not labels.keys() <= set(fixed):
        check_one_class(path, labels)
        names = one_name_each(labels)
    several = sorted(one for one in labels if names[one] != one)
    if several:
        notes.append(
            f"classes written in several ways are one each: {', '.join(several[:SHOWN_NAMES])}"
        )
    notes += resizing_note(sizes, side)
    return _Form(fixed, names, channels, side, parts, last, dealing, notes)


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
    tally = asked.tally
    for found in asked.records():
        if isinstance(found, UnusableRecord):
            tally.leave_record(found)
        elif _within(found, form.last):
            noticed: list[str] = []
            try:
                pixels = pixels_of(
                    found.picture, found.where, form.side, form.channels, noticed.append
                )
            except (UnreadablePictureError, OversizedPictureError) as error:
                tally.leave(found.where, error.why)
                continue
            for what in noticed:
                tally.notice(found.where, what)
            key = found.user.encode() or hashlib.sha256(pixels.tobytes()).digest()
            name = part(found, key)
            if name == TEST and not found.label:
                tally.leave(found.where, "of the test, and without a label")
                continue
            group = groups.setdefault(name, _Group())
            group.digests.append(digest_of(pixels, noticed))
            _add(group, asked, form.names.get(found.label, found.label), found, key, pixels)
            if found.user and not asked.source.owner:
                tally.meet(found.user)
    return groups, [*form.notes, *tally.sentences(), *_copies(list(groups.values()))]


def _copies(groups: list[_Group]) -> list[str]:
    digests = [one for group in groups for one in group.digests]
    names = {one: place for place, one in enumerate({x for g in groups for x in g.labels})}
    labels = [names[one] for group in groups for one in group.labels]
    users = [owner_number(one) for group in groups for one in group.users]
    arrays = (np.array(one, np.int64) for one in (digests, labels, users))
    return note_copies(*arrays)


def _add(
    group: _Group,
    asked: _Asked,
    label: str,
    found: LabelledRecord,
    key: bytes,
    pixels: NDArray[np.uint8],
) -> None:
    group.pixels.write(pixels.tobytes())
    group.labels.append(label)
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
