"""Which format a path has, and a source's records with label and user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from fedlens.data.formats.decoding import frames_of
from fedlens.data.formats.detection import check_no_detection
from fedlens.data.formats.folders import folder_records, has_class_folders
from fedlens.data.formats.label_names import SEVERAL, label_in, one_hot_columns
from fedlens.data.formats.layouts import DEEPEST, entries, holds_pictures, is_junk, sub_folders
from fedlens.data.formats.packed import is_packed, packed_format
from fedlens.data.formats.records import (
    Picture,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    column_named,
    few_of,
    is_someone,
    is_value,
    naming,
)
from fedlens.data.labelled.pictures import SUFFIXES
from fedlens.data.registry import DATASETS, format_of
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.unlabelled import NO_CLASS, PARTLY, UNLABELLED, is_mark

PACKED, TREE = "packed", "tree"
ONE, EACH = "one", "each"
"""Whose records are, where no column says: one user's, or each a user's of its own."""
LOOKED_AT = 100
"""Records whose columns are looked at to know which there are: the first may lack some."""


UNREAD = {
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "is a database; write its pictures to files, "
                    "with a table that names them"),
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
_REMARK = re.compile(
    r"(readme|licen[cs]e|citation|changelog)(\.(md|txt|rst|pdf|html?|cff))?", re.IGNORECASE
)


@dataclass(frozen=True, eq=False)
class LabelledRecord:
    """A record with its label and user as texts; no user where none is asked for.

    Attributes:
        where: file and line or row.
        picture: not decoded yet.
        label: as the source has it; empty of a record without one, where that may be.
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
        user_from_name: what finds the user in a picture's path below the source, in place of a
            column: the first group of a regular expression, or all that it matches.
        needs_user: whether a record without a user is unusable.
        each_frame: whether each frame or page of a picture is a record.
        columns: what the reader must know.
        needs_label: whether a record without a label is unusable; else none has one.
        partly: whether one without a label has an empty one instead, where others have some.
        mapped: labels that somebody said the class of: such a one is a label, whatever it is.
    """

    path: Path
    kind: str
    format: SourceFormat
    label: str = ""
    user: str = ""
    owner: str = ""
    user_from_name: re.Pattern[str] | None = None
    needs_user: bool = True
    each_frame: bool = False
    columns: SourceColumns = field(default_factory=SourceColumns)
    needs_label: bool = True
    partly: bool = False
    mapped: Container[str] = ()

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
            chosen = chosen or self._choose()
            labelled = chosen._labelled(found, place)
            if self.each_frame and isinstance(labelled, LabelledRecord):
                yield from _each_frame(labelled)
            else:
                yield labelled

    def knows_users(self) -> bool:
        """Whether the first records have a column that the format takes for the user."""
        return bool(column_named(self._first_values(), self.format.users))

    def _first_values(self) -> dict[str, str]:
        """Columns of the first records, each with the first value that it has."""
        found: dict[str, str] = {}
        for one in self._first_records():
            found = {**one.values, **{name: value for name, value in found.items() if value}}
        return found

    def _first_records(self) -> Iterator[SourceRecord]:
        quiet = replace(self.columns, told=lambda _: None)
        for one in islice(self.format.records(self.path, quiet), LOOKED_AT):
            if isinstance(one, SourceRecord):
                yield one

    def _choose(self) -> RecordSource:
        """The same with the names of the columns, which its first records tell."""
        there = self._first_values()
        user = self.user
        if self.needs_user and not (self.owner or self.user_from_name):
            user = self._column(there, self.user, self.format.users, "user", " ".join((
                "or with --user-from-name 'person(\\d+)' find it in each file's name, or say",
                "--one-user (all records are one person's) or --each-record-a-user")))  # fmt: skip
        label = ""
        if self.needs_label:
            flags = SEVERAL.join(one_hot_columns(one.values for one in self._first_records()))
            hint = f"; of columns of 0 and 1, one a class: --label {shlex.quote(flags)}"
            label = self._column(there, self.label, self.format.labels, "label", hint * bool(flags))
        return replace(self, label=label, user=user)

    def _column(
        self, there: Mapping[str, str], named: str, usual: tuple[str, ...], what: str, more: str
    ) -> str:
        lacking = [] if named in there else [x for x in named.split(SEVERAL) if x not in there]
        if named and lacking:
            raise SourceError(
                f"{self.path}: has no column {lacking[0]!r}; there are {few_of(there)}"
            )
        found = named or column_named(there, usual)
        if not found:
            raise SourceError(
                f"{self.path}: which column is the {what}? {naming(what)}"
                f"{' ' * (bool(more) and more[0] != ';')}{more}; there are {few_of(there)}"
            )
        return found

    def _labelled(self, found: SourceRecord, place: int) -> LabelledRecord | UnusableRecord:
        label = label_in(found.values, self.label) if self.needs_label else UNLABELLED
        if "\n" in label:
            why = "a label of several lines; is a quote not closed?"
            return UnusableRecord(found.where, why, part=found.part)
        if self.needs_label and not self._is_class(label):
            why = _why_no_label(label, self.label)
            if self.partly and (why or label == str(NO_CLASS)):
                label = ""
            elif why:
                return UnusableRecord(found.where, why, part=found.part)
        if self.needs_user or self.owner:
            user = self._user_of(found, place)
            if isinstance(user, UnusableRecord):
                return user
        else:
            user = ""
        return LabelledRecord(found.where, found.picture, label, user, found.values, found.part)

    def _user_of(self, found: SourceRecord, place: int) -> str | UnusableRecord:
        if self.owner:
            return ONE if self.owner == ONE else f"record {place}"
        if self.user_from_name is not None:
            seen = self.user_from_name.search(_name_of(found, self.path))
            name = (seen[1] if seen.re.groups else seen[0]) if seen else ""
            why = "no user in its name (--user-from-name)"
            return name or UnusableRecord(found.where, why, part=found.part)
        name = found.values.get(self.user, "").strip()
        if not is_someone(name):
            return UnusableRecord(found.where, _no_value(self.user, name), part=found.part)
        return name

    def _is_class(self, name: str) -> bool:
        if name in self.mapped:
            return True
        return self.columns.is_class is not None and self.columns.is_class(name)


def _why_no_label(label: str, column: str) -> str:
    """Why what stands as a label is none; empty where it is one."""
    if is_mark(label):
        return f"marked as {label!r}: kept where labels are {PARTLY!r} alone"
    return "" if is_value(label) else _no_value(column, label)


def _no_value(column: str, text: str) -> str:
    return f"no value in {column}" + (f" ({text!r})" if text else "")


def _name_of(found: SourceRecord, root: Path) -> str:
    """A picture's way below its source; of one that is no file, the record's place."""
    picture = found.picture
    if not isinstance(picture, Path):
        return found.values.get("key", found.where)
    below = picture.is_relative_to(root)
    return str(picture.relative_to(root)) if below and picture != root else picture.name


def _each_frame(found: LabelledRecord) -> Iterator[LabelledRecord]:
    frames = frames_of(found.picture, found.where)
    for number, frame in enumerate(frames):
        where = found.where if len(frames) == 1 else f"{found.where} frame {number}"
        yield replace(found, picture=frame, where=where)


def open_source(
    path: Path | str,
    kind: str = "",
    *,
    label: str = "",
    user: str = "",
    owner: str = "",
    image: str = "",
    user_from_name: str = "",
    needs_user: bool = True,
    needs_label: bool = True,
    partly: bool = False,
    each_frame: bool = False,
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
    if kind == TREE and needs_label:
        check_no_detection(where)
    where = unwrapped(where, kind)
    name = kind or kind_of(where, needs_label)
    layout = format_of(name)
    if kind and kind != PACKED and is_packed(where):
        layout = packed_format(kind)
    return RecordSource(
        path=where,
        kind=name,
        format=layout,
        label=label,
        user=user,
        owner=owner,
        user_from_name=_pattern(user_from_name, user, owner),
        needs_user=needs_user,
        each_frame=each_frame,
        columns=SourceColumns(image, label),
        needs_label=needs_label and format_of(name).labelled,
        partly=partly,
    )


def _pattern(text: str, user: str, owner: str) -> re.Pattern[str] | None:
    """What finds a user in a file's name; None where a column or nobody does."""
    if not text:
        return None
    if user or owner:
        raise WrongUse("--user-from-name says whose records are; leave the other such flag out")
    try:
        return re.compile(text)
    except re.error as error:
        raise WrongUse(
            f"--user-from-name {text!r}: is no regular expression ({error}); write one such as "
            "'person(\\d+)'"
        ) from None


def unwrapped(path: Path, kind: str = "") -> Path:
    """The only folder or file in a folder, where that is of a format and the outer one is not.

    Folders of classes say themselves what they pass through. Remarks beside it do not count, and a
    folder in a folder is looked into too.
    """
    fits = _fits_of([kind] if kind else [name for name in DATASETS if name != TREE])
    inner = path
    for _ in range(DEEPEST):
        inside = [one for one in inner.iterdir() if not _no_data(one)] if inner.is_dir() else []
        if kind == TREE or len(inside) != 1 or inside[0].is_symlink():
            return path
        if any(one(inner) for one in fits):
            return inner
        inner = inside[0]
        if any(one(inner) for one in fits):
            return inner
    return path


def _fits_of(names: Iterable[str]) -> list[Callable[[Path], bool]]:
    return [found.fits for name in names if (found := DATASETS[name].format) is not None]


def _no_data(path: Path) -> bool:
    """Whether a file is one that systems leave behind, or a remark on a data set."""
    return is_junk(path.name) or (path.is_file() and bool(_REMARK.fullmatch(path.name)))


def kind_of(path: Path, needs_label: bool = True) -> str:
    """The format that a path's files are of, the first that fits.

    Raises:
        SourceError: there is none.
    """
    if path.is_dir() and next(path.iterdir(), None) is None:
        raise SourceError(f"{path}: is empty; put records into it")
    known: dict[object, str] = {}
    tree = path.is_dir() and has_class_folders(path)
    for name in DATASETS:
        found = DATASETS[name].format
        if found is not None and found.fits not in known and (found.in_folders or not tree):
            if name == TREE and needs_label:
                check_no_detection(path)
            usable = found.labelled if needs_label else found.records is not folder_records
            if usable and found.fits(path):
                if name == TREE and (unread := _unread_in(path)):
                    raise SourceError(unread)
                return name
            known[found.fits] = name
    raise SourceError(
        _unread_in(path)
        or f"{path}: is none of {', '.join(known.values())}; see the page on providing data, or "
        "name the format with --format"
    )


def _unread_in(path: Path) -> str:
    """What to do of a file that is not read, or of files in a folder that has nothing else.

    Empty where a folder has folders or pictures, and where nothing is known of its files.
    """
    if path.is_file():
        return f"{path}: {said}" if (said := UNREAD.get(path.suffix.lower())) else ""
    if sub_folders(path) or holds_pictures(path, SUFFIXES):
        return ""
    files = [Path(one.path) for one in islice(entries(path), LOOKED_AT)]
    files = [one for one in files if one.is_file() and not one.is_symlink()]
    fits = _fits_of(name for name in DATASETS if name != TREE)
    sets = [one.name for one in files if any(fit(one) for fit in fits)]
    if sets:
        few = ", ".join(sets[:3]) + (", ..." if len(sets) > 3 else "")
        each = ", each a data set of its own" if len(sets) > 1 else " beside other files"
        return f"{path}: has {few}{each}; name one as the path"
    return next((said for one in files if (said := _unread_in(one))), "")
