"""One pass over a source: each record is taken into the store, or left out for a reason."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.client.contract import FederationContract
from fedlens.client.node.store import DECLARED, LEFT_OUT
from fedlens.client.preparing.growing import GrowingArray
from fedlens.client.preparing.identities import (
    FINGERPRINT_BYTES,
    fingerprint,
    is_listed,
    own_number,
    read_fingerprints,
    write_fingerprints,
)
from fedlens.client.preparing.labels import AgreedNames
from fedlens.client.preparing.report import Looks
from fedlens.data.formats.decoding import pixels_of
from fedlens.data.formats.folders import PICTURES
from fedlens.data.formats.formats import LabelledRecord, RecordSource
from fedlens.data.formats.label_names import LEAVE_OUT, SEVERAL
from fedlens.data.formats.left_out import EXAMPLES, LeftOut, digest_of, note_copies
from fedlens.data.formats.records import TRAIN, SourceError, UnusableRecord, plain_name
from fedlens.data.labelled.pictures import OversizedPictureError, UnreadablePictureError
from fedlens.foundation.errors import FedlensError, WrongUse
from fedlens.foundation.unlabelled import NO_CLASS, reads_own_labels
from fedlens.models.label_models import LabelModel

FINGERPRINTS = "fingerprints.bin"
NO_VALUE = -1
MOST_NAMES = 1000
Told = Callable[[int], None]


class PrepareError(FedlensError):
    """Data that cannot be brought into the federation's form; the message says the fix."""


@dataclass(frozen=True)
class Preparation:
    """What a preparation goes by.

    Attributes:
        contract: of the federation.
        secret: the node's own, for users' numbers.
        mapped: an owner's names of classes to agreed ones, or to `LEAVE_OUT`.
        sensitive: column of the sensitive attribute; empty: the one of its name.
        whole: take records of every part of the source; else its training part alone.
        owners_secret: the one that owners share, for fingerprints; None for none.
        without: another node's fingerprints, whose users are left out.
        roster: names of users who are enrolled, those without records too; None: who has some.
        label_model: names records where the contract says so; None where it does not.
    """

    contract: FederationContract
    secret: bytes
    mapped: dict[str, str] = field(default_factory=dict)
    sensitive: str = ""
    whole: bool = False
    owners_secret: bytes | None = None
    without: Path | None = None
    roster: Path | None = None
    label_model: LabelModel | None = None

    def __post_init__(self) -> None:
        """Refuse another label model than the owners agreed on, and names that it has no use for.

        Raises:
            WrongUse: naming the flag.
        """
        contract, model = self.contract, self.label_model
        given = "" if model is None else model.digest
        if given != contract.label_model:
            agreed = contract.label_model[:12]
            fix = f"name the file whose SHA-256 begins with {agreed}" if agreed else "leave it out"
            raise WrongUse(
                f"--label-model: federation.toml says labels = {contract.labels!r}; {fix}"
            )
        if model is not None and model.class_names != contract.classes:
            raise WrongUse(
                f"--label-model: it names {', '.join(model.class_names[:20])}, and the agreed "
                f"classes are {', '.join(contract.classes[:20])}: agree on its names, in its order"
            )
        if self.mapped and not reads_own_labels(contract.labels):
            raise WrongUse(
                f"--map: federation.toml says labels = {contract.labels!r}, so your own labels are "
                "not read; leave it out"
            )


class Intake:
    """One pass over a source."""

    def __init__(self, source: RecordSource, wanted: Preparation, folder: Path) -> None:
        self._wanted, self._folder = wanted, folder
        contract = wanted.contract
        self._agreed = AgreedNames(contract.classes, wanted.mapped)
        self.tally = LeftOut()
        self._source = replace(
            source,
            columns=replace(source.columns, is_class=self._is_class, told=self.tally.tell),
        )
        self._hidden = (
            None if contract.sensitive is None else AgreedNames(contract.sensitive.values)
        )
        self._declared = {name: AgreedNames(values) for name, values in contract.declared.items()}
        self._listed = None if wanted.without is None else read_fingerprints(wanted.without)
        if self._listed is not None and wanted.owners_secret is None:
            raise WrongUse("--without needs --owners-secret: fingerprints are made under it")
        self.looks = Looks(contract.classes, contract.shape)
        self._foreign: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._copies: list[str] = []
        self._kept = 0
        self._files = ExitStack()

    @property
    def notes(self) -> list[str]:
        """What the owner should know beside numbers."""
        found = []
        if self._source.format is PICTURES.format and not self._source.owner:
            found = ["users are the folders: --format tree if these are classes instead"]
        found += [
            f"no column {name!r}: users have no value of this public attribute"
            for name in sorted(self._missing)
        ]
        return [*found, *self.tally.lines(), *self._copies]

    def _is_class(self, name: str) -> bool:
        try:
            self._agreed.number(name)
        except KeyError:
            return False
        return True

    def __enter__(self) -> Intake:
        shape = self._wanted.contract.shape
        enter, folder = self._files.enter_context, self._folder
        self._images = enter(GrowingArray(folder / "images.npy", "|u1", shape))
        self._labels = enter(GrowingArray(folder / "labels.npy", "<i8"))
        self._owners = enter(GrowingArray(folder / "owners.part", "<i8"))
        self._digests = enter(GrowingArray(folder / "digests.part", "<i8"))
        self._sensitive = self._hidden and enter(GrowingArray(folder / "sensitive.npy", "<i8"))
        self._columns = {
            name: enter(GrowingArray(folder / f"{DECLARED}{name}.part", "<i2"))
            for name in self._declared
        }
        self._prints = self._wanted.owners_secret and enter(
            GrowingArray(folder / "prints.part", "|u1", (FINGERPRINT_BYTES,))
        )
        file = enter((folder / LEFT_OUT).open("w", newline="", encoding="utf-8"))
        self.tally.write = csv.writer(file).writerow
        self.tally.write(["where", "why"])
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def run(self, told: Told) -> None:
        """Take in every record, or leave it out."""
        for place, found in enumerate(self._source.records()):
            if place % 1000 == 0:
                told(place)
            if not self._wanted.whole and found.part not in ("", TRAIN):
                why = f"of the part {found.part!r} (--whole takes all)"
                self.tally.leave(found.where, why, True)
            elif isinstance(found, UnusableRecord):
                self.tally.leave_record(found)
            else:
                self._take(found)

    def _take(self, found: LabelledRecord) -> None:
        if not (reads_own_labels(self._wanted.contract.labels) and found.label):
            none = 0 if self._wanted.contract.unlabelled else NO_CLASS
            return self._take_labelled(found, none)
        try:
            label = self._agreed.number(found.label)
        except KeyError:
            if len(self._foreign) < MOST_NAMES or found.label in self._foreign:
                self._foreign[found.label] += 1
            return self.tally.leave(found.where, "a label that is not agreed")
        if label is None:
            return self.tally.leave(found.where, f"label {found.label!r}, as --map says", True)
        self._take_labelled(found, label)

    def _take_labelled(self, found: LabelledRecord, label: int) -> None:
        contract = self._wanted.contract
        shared = None
        if self._wanted.owners_secret is not None:
            shared = fingerprint(self._wanted.owners_secret, contract.name, found.user)
            if self._listed is not None and is_listed(self._listed, shared):
                return self.tally.leave(found.where, "a user of the other node", True)
        try:
            hidden = self._value_of_sensitive(found)
            declared = {name: self._value(found, name) for name in self._declared}
        except PrepareError as error:
            return self.tally.leave(found.where, str(error))
        noticed: list[str] = []
        try:
            pixels = pixels_of(
                found.picture, found.where, contract.shape[1], contract.shape[0], noticed.append
            )
        except (UnreadablePictureError, OversizedPictureError) as error:
            return self.tally.leave(found.where, error.why)
        if self._wanted.label_model is not None and label == NO_CLASS:
            named, sure = self._wanted.label_model.name(pixels[None])  # one by one: see `name`
            label = int(named[0])
            if sure[0] < contract.least_confidence:
                why = "the label model is not sure enough"
                return self.tally.leave(found.where, why, True)
        for what in noticed:
            self.tally.notice(found.where, what)
        self._digests.append(digest_of(pixels, noticed))
        if not self._source.owner:
            self.tally.meet(plain_name(found.user))
        self._write(found, label, pixels, hidden, declared, shared)

    def _write(
        self, found: LabelledRecord, label: int, pixels: NDArray[np.uint8], hidden: int,
        declared: dict[str, int], shared: bytes | None,
    ) -> None:  # fmt: skip
        self._images.append(pixels)
        self._labels.append(label)
        self._owners.append(own_number(self._wanted.secret, found.user))
        if self._sensitive:
            self._sensitive.append(hidden)
        for name, value in declared.items():
            self._columns[name].append(value)
        if self._prints and shared is not None:
            self._prints.append(np.frombuffer(shared, np.uint8))
        self.looks.add(label, pixels)
        self._kept += 1

    def _value_of_sensitive(self, found: LabelledRecord) -> int:
        sensitive = self._wanted.contract.sensitive
        if sensitive is None or self._hidden is None:
            return NO_VALUE
        column = self._wanted.sensitive or sensitive.attribute
        if column not in found.values:
            raise SourceError(
                f"{self._source.path}: has no column {column!r}, the sensitive attribute; name it "
                f"with --sensitive; there are {', '.join(sorted(found.values))}"
            )
        return self._number(self._hidden, column, found.values[column])

    def _value(self, found: LabelledRecord, name: str) -> int:
        if name not in found.values:
            self._missing.add(name)
            return NO_VALUE
        return self._number(self._declared[name], name, found.values[name])

    def _number(self, agreed: AgreedNames, name: str, value: str) -> int:
        try:
            number = agreed.number(value.strip())
        except KeyError:
            raise PrepareError(f"a value of {name} that is not agreed") from None
        return NO_VALUE if number is None else number

    def check(self) -> None:
        """Refuse labels that are not agreed, and a source of which nothing is left."""
        if self._foreign:
            few = [f"{name!r} ({count})" for name, count in self._foreign.most_common(EXAMPLES)]
            more = ", ..." if len(self._foreign) > EXAMPLES else ""
            first = self.tally.examples["a label that is not agreed"][0]
            agreed = self._wanted.contract.classes
            raise PrepareError(
                f"{self._source.path}: labels {', '.join(few)}{more} are none of the agreed "
                f"classes {', '.join(agreed[:10])}{', ...' if len(agreed) > 10 else ''} (first at "
                f"{first}{self._granted()}); say which they are with --map OWN=CLASS, or leave "
                f"them out with --map OWN={LEAVE_OUT}{self._hint_on_several()}"
            )
        if not self._kept:
            raise PrepareError(
                f"{self._source.path}: no record is left{self.tally.why_none()}; give some that "
                "can be read"
            )

    def _hint_on_several(self) -> str:
        """What to do with labels that list several classes; nothing where there are none."""
        if not any(self._agreed.is_several(name) for name in self._foreign):
            return ""
        return (
            f"; a record has one class: --map '{SEVERAL}={LEAVE_OUT}' leaves out all that have "
            "several"
        )

    def _granted(self) -> str:
        """What a reader took for granted, behind what is refused."""
        return "".join(f"; {note}" for note in self.tally.notes[:2])

    def compare(self) -> None:
        """Count copies among what was taken in."""
        path = self._folder / "digests.part"
        held = (path, self._folder / "labels.npy", self._folder / "owners.part")
        arrays = [np.load(one, mmap_mode="r") for one in held]
        self._copies = note_copies(*arrays)
        path.unlink()

    def write_fingerprints(self) -> None:
        """Put the list of users' fingerprints in order, each once."""
        path = self._folder / "prints.part"
        if self._prints:
            rows = np.load(path, mmap_mode="r")
            kind = np.dtype((np.void, FINGERPRINT_BYTES))
            write_fingerprints(self._folder / FINGERPRINTS, rows.view(kind).reshape(-1))
            path.unlink()
