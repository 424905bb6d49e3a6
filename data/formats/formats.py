"""Which format a path has, and a source's records with label and user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedlens.data.formats.folders import folder_records
from fedlens.data.formats.records import (
    Found,
    Picture,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    naming,
)
from fedlens.data.registry import DATASETS, format_of
from fedlens.foundation.unlabelled import UNLABELLED

ONE, EACH = "one", "each"
"""Whose records are, where no column says: one user's, or each a user's of its own."""


@dataclass(frozen=True, eq=False)
class LabelledRecord:
    """A record with its label and user as texts; no user where none is asked for.

    Attributes:
        where: file and line or row.
        picture: not decoded yet.
        label: as the source has it.
        user: as the source has it; empty where users are not asked for.
        values: all columns.
        part: as in `SourceRecord`.
    """

    where: str
    picture: Picture
    label: str
    user: str
    values: Mapping[str, str]
    part: str


@dataclass(frozen=True)
class RecordSource:
    """Records at a path, in a format, with what they are labelled and whose they are.

    Attributes:
        path: file or folder.
        kind: the format's name.
        format: how it is read.
        label: column of the class; empty: the first of the format's that is there.
        user: column of the user, likewise.
        owner: `ONE` or `EACH` in place of a column; empty otherwise.
        needs_user: whether a record without a user is unusable.
        columns: what the reader must know.
        needs_label: whether a record without a label is unusable; else none has one.
    """

    path: Path
    kind: str
    format: SourceFormat
    label: str = ""
    user: str = ""
    owner: str = ""
    needs_user: bool = True
    columns: SourceColumns = field(default_factory=SourceColumns)
    needs_label: bool = True

    def records(self) -> Iterator[LabelledRecord | UnusableRecord]:
        """Every record once, in the order in which they lie.

        Raises:
            SourceError: the source cannot be read on, or lacks the column that is named.
        """
        chosen: RecordSource | None = None
        for place, found in enumerate(self.format.records(self.path, self.columns)):
            if isinstance(found, UnusableRecord):
                yield found
                continue
            chosen = chosen or self._choose(found)
            yield chosen._labelled(found, place)

    def _choose(self, first: SourceRecord) -> RecordSource:
        """The same with the names of the columns, which its first record tells."""
        user = self.user
        if self.needs_user and not self.owner:
            user = self._column(first, self.user, self.format.users, "user", " ".join((
                "or say --one-user (all records are one person's)",
                "or --each-record-a-user")))  # fmt: skip
        label = ""
        if self.needs_label:
            label = self._column(first, self.label, self.format.labels, "label", "")
        return replace(self, label=label, user=user)

    def _column(
        self, first: SourceRecord, named: str, usual: tuple[str, ...], what: str, more: str
    ) -> str:
        there = ", ".join(sorted(first.values)) or "none"
        if named and named not in first.values:
            raise SourceError(f"{self.path}: has no column {named!r}; there are {there}")
        found = [name for name in usual if name in first.values]
        if not (named or found):
            raise SourceError(
                f"{self.path}: which column is the {what}? {naming(what)}"
                f"{' ' * bool(more)}{more}; there are {there}"
            )
        return named or found[0]

    def _labelled(self, found: Found, place: int) -> LabelledRecord | UnusableRecord:
        if isinstance(found, UnusableRecord):
            return found
        label, user = UNLABELLED, ""
        if self.needs_label:
            label = found.values.get(self.label, "").strip()
        if not label:
            return UnusableRecord(found.where, f"no value in {self.label}")
        if self.owner:
            user = ONE if self.owner == ONE else f"record {place}"
        elif self.needs_user:
            user = found.values.get(self.user, "").strip()
            if not user:
                return UnusableRecord(found.where, f"no value in {self.user}")
        return LabelledRecord(found.where, found.picture, label, user, found.values, found.part)


def open_source(
    path: Path | str,
    kind: str = "",
    *,
    label: str = "",
    user: str = "",
    owner: str = "",
    image: str = "",
    needs_user: bool = True,
    needs_label: bool = True,
) -> RecordSource:
    """A source, its format found by its files where none is named.

    Folders of pictures are taken for classes where labels are needed, and else for users.

    Raises:
        SourceError: there is nothing at the path, or no format that fits.
        WrongUse: there is no such format.
    """
    where = Path(path).expanduser()
    if not where.exists():
        raise SourceError(f"{where}: does not exist; give a folder or file of records")
    if not (where.is_file() or where.is_dir()):
        raise SourceError(f"{where}: is no plain file or folder; give one")
    name = kind or _kind_of(where, needs_label)
    columns, layout = SourceColumns(image), format_of(name)
    needs = needs_label and layout.labelled
    return RecordSource(where, name, layout, label, user, owner, needs_user, columns, needs)


def _kind_of(path: Path, needs_label: bool) -> str:
    if path.is_dir() and next(path.iterdir(), None) is None:
        raise SourceError(f"{path}: is empty; put records into it")
    known: dict[object, str] = {}
    for name in DATASETS:
        found = DATASETS[name].format
        if found is not None and found.fits not in known:
            usable = found.labelled if needs_label else found.records is not folder_records
            if usable and found.fits(path):
                return name
            known[found.fits] = name
    names = ", ".join(known.values())
    raise SourceError(
        f"{path}: is none of {names}; see the page on providing data, or name the format with "
        "--format"
    )
