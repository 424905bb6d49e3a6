"""Which format a path has, and a source's records with label and user."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedlens.data.formats.detection import check_no_detection
from fedlens.data.formats.label_names import SEVERAL, label_in, one_hot_columns
from fedlens.data.formats.packed import is_packed, packed_format
from fedlens.data.formats.records import (
    Found,
    Picture,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    column_named,
    few_of,
    naming,
)
from fedlens.data.registry import DATASETS, format_of

PACKED, TREE = "packed", "tree"
ONE, EACH = "one", "each"
"""Whose records are, where no column says: one user's, or each a user's of its own."""


UNREAD = {
    ".npy": "is one array, without labels; write pictures and labels to one .npz with numpy.savez",
    **dict.fromkeys((".xls", ".ods"), "is a table that is not read; save it as .xlsx or CSV"),
    **dict.fromkeys((".rar", ".7z", ".bz2", ".xz", ".zst"), "is packed; unpack it, or pack it as "
                    ".zip or .tar.gz"),
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth", ".joblib"), "is a pickle, which can run "
                    "code and is not opened; write it with numpy.savez"),
    **dict.fromkeys((".tfrecord", ".lmdb", ".mdb", ".beton", ".rec"), "is not read; export it as "
                    "folders of classes, WebDataset or Parquet"),
}  # fmt: skip
"""Files that people bring and that are not read, and what to do."""


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
    """

    path: Path
    kind: str
    format: SourceFormat
    label: str = ""
    user: str = ""
    owner: str = ""
    needs_user: bool = True
    columns: SourceColumns = field(default_factory=SourceColumns)

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
        label = self._column(first, self.label, self.format.labels, "label", "")
        return replace(self, label=label, user=user)

    def _column(
        self, first: SourceRecord, named: str, usual: tuple[str, ...], what: str, more: str
    ) -> str:
        if named and not all(name in first.values for name in self._columns_of(named, first)):
            raise SourceError(
                f"{self.path}: has no column {named!r}; there are {few_of(first.values)}"
            )
        found = named or column_named(first.values, usual)
        if not found:
            flags = one_hot_columns(first.values) if what == "label" else []
            hint = f", such as --{what} {shlex.quote(SEVERAL.join(flags))}" if flags else ""
            raise SourceError(
                f"{self.path}: which column is the {what}? {naming(what)}{hint}"
                f"{' ' * bool(more)}{more}; there are {few_of(first.values)}"
            )
        return found

    @staticmethod
    def _columns_of(named: str, first: SourceRecord) -> list[str]:
        """The columns of a name: itself, or of ``A|B`` each."""
        return [named] if named in first.values else named.split(SEVERAL)

    def _labelled(self, found: Found, place: int) -> LabelledRecord | UnusableRecord:
        if isinstance(found, UnusableRecord):
            return found
        label, user = label_in(found.values, self.label), ""
        if not label:
            return UnusableRecord(found.where, f"no value in {self.label}", found.part)
        if self.owner:
            user = ONE if self.owner == ONE else f"record {place}"
        elif self.needs_user:
            user = found.values.get(self.user, "").strip()
            if not user:
                return UnusableRecord(found.where, f"no value in {self.user}", found.part)
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
) -> RecordSource:
    """A source, its format found by its files where none is named.

    Raises:
        SourceError: there is nothing at the path, or no format that fits.
        WrongUse: there is no such format.
    """
    where = Path(path).expanduser()
    if not where.exists():
        raise SourceError(f"{where}: does not exist; give a folder or file of records")
    if not (where.is_file() or where.is_dir()):
        raise SourceError(f"{where}: is no plain file or folder; give one")
    if kind == TREE:
        check_no_detection(where)
    name = kind or kind_of(where)
    layout = format_of(name)
    if kind and kind != PACKED and is_packed(where):
        layout = packed_format(kind)
    return RecordSource(where, name, layout, label, user, owner, needs_user, SourceColumns(image))


def kind_of(path: Path) -> str:
    """The format that a path's files are of, the first that fits.

    Raises:
        SourceError: there is none.
    """
    if path.is_dir() and next(path.iterdir(), None) is None:
        raise SourceError(f"{path}: is empty; put records into it")
    known: dict[object, str] = {}
    for name in DATASETS:
        found = DATASETS[name].format
        if found is not None and found.fits not in known:
            if name == TREE:
                check_no_detection(path)
            if found.fits(path):
                return name
            known[found.fits] = name
    names = ", ".join(known.values())
    said = UNREAD.get(path.suffix.lower()) if path.is_file() else None
    raise SourceError(
        f"{path}: {said}"
        if said
        else f"{path}: is none of {names}; see the page on providing data, or name the format with "
        "--format"
    )
