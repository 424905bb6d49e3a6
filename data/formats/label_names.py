"""Labels as people write them: ``cat`` and ``Cat``, ``3.0``, several in one cell, a column each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fedlens.data.formats.records import SourceError

SEVERAL = "|"
"""Between the names of several classes, and of the columns of which each is one class; as a name
of its own in a map it stands for every label that names several."""
LEAVE_OUT = "-"
_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "-1", "-1.0", "false", "no", "")
_BETWEEN = re.compile(r"[\s_\-]+")
_WHOLE = re.compile(r"(-?\d+)\.0+")
_LISTED = re.compile(r"\s*[|;,/]\s*")
MOST_FLAGS = 100


def loosely(name: str) -> str:
    """A name without what does not count: capitals, blanks, ``_``, ``-``, a number's ``.0``."""
    name = unicodedata.normalize("NFC", name.strip())
    if (whole := _WHOLE.fullmatch(name)) is not None:
        return whole[1]
    return _BETWEEN.sub(" ", name).casefold()


def label_in(values: Mapping[str, str], column: str) -> str:
    """A record's label: its cell in a column, or of columns ``A|B`` the names of those that have 1.

    Empty where there is none, or where a column of a class has another value than 0 or 1.
    """
    if column in values or SEVERAL not in column:
        return values.get(column, "").strip()
    cells = {name: values.get(name, "").strip().casefold() for name in column.split(SEVERAL)}
    if not all(cell in _YES + _NO for cell in cells.values()):
        return ""
    return SEVERAL.join(name for name, cell in cells.items() if cell in _YES)


def one_hot_columns(records: Iterable[Mapping[str, str]]) -> list[str]:
    """Columns of 0 and 1 that may be one class each, by some records; none where only one is."""
    flags: dict[str, bool] = {}
    for values in records:
        for name, cell in values.items():
            flag = cell.strip().casefold() in ("0", "1", "0.0", "1.0", "true", "false")
            flags[name] = flags.get(name, True) and flag
    found = [name for name, flag in flags.items() if flag]
    return found if 2 <= len(found) <= MOST_FLAGS else []


def names_several(label: str, known: Container[str]) -> bool:
    """Whether a label lists classes, ``A|B`` (or with ``;`` ``,`` ``/``): each must be a known one.

    Args:
        label: as it stands there.
        known: `loosely` written names of classes.
    """
    parts = _LISTED.split(label)
    return len(parts) > 1 and all(part and loosely(part) in known for part in parts)


def one_name_each(labels: Mapping[str, int]) -> dict[str, str]:
    """What each label is called, where people wrote one class in several ways.

    Labels that differ in capitals, blanks, ``_`` and ``-`` alone, and are longer than one letter,
    have the commonest one's name; numbers with ``.0`` lose it.

    Args:
        labels: how often each comes.
    """
    alike: dict[str, list[str]] = {}
    for label in sorted(labels):
        alike.setdefault(loosely(label) if len(label) > 1 else label, []).append(label)
    chosen = {key: max(few, key=lambda one: labels[one]) for key, few in alike.items()}
    return {
        label: key if _WHOLE.fullmatch(label) else chosen[key]
        for key, few in alike.items()
        for label in few
    }


def renaming(text: str) -> dict[str, str]:
    """``OWN:CLASS;OWN:CLASS`` as a map.

    Raises:
        SourceError: one is no such pair.
    """
    pairs = [one.rpartition(":") for one in text.split(";") if one.strip()]
    if not all(own.strip() and name.strip() for own, _, name in pairs):
        raise SourceError(
            f"map={text!r}: write map=OWN:CLASS;OWN:CLASS, and {LEAVE_OUT} for a class to leave "
            "records out"
        )
    return {own.strip(): name.strip() for own, _, name in pairs}


def renamed(label: str, names: Mapping[str, str]) -> str:
    """A label's other name by a map, or itself."""
    if label in names:
        return names[label]
    return names.get(SEVERAL, label) if SEVERAL in label else label


def notes_on(labels: Sequence[str]) -> Iterator[str]:
    """What is said of training records' labels, each empty where a record has none."""
    if bare := labels.count(""):
        yield f"{bare} of {len(labels)} training records have no label"
    if len({*labels} - {""}) == 1:
        yield (
            f"all records are of one class, {max(labels)!r}; if classes lie elsewhere, name the "
            "folder above theirs as the path, or their column with ,label=COLUMN"
        )


def check_one_class(path: Path, labels: Mapping[str, int]) -> None:
    """Refuse labels that name several of the others' classes.

    Args:
        path: of the source.
        labels: how often each comes.

    Raises:
        SourceError: some do.
    """
    known = {loosely(one) for one in labels if len(_LISTED.split(one)) == 1}
    several = [one for one in labels if SEVERAL in one]
    several = several or [one for one in labels if names_several(one, known)]
    if several:
        count = sum(labels[one] for one in several)
        raise SourceError(
            f"{path}: labels such as {several[0]!r} ({count} records) name several classes, and a "
            f"record has one; map={SEVERAL}:{LEAVE_OUT} behind the path leaves them out, "
            "map=OWN:CLASS;OWN:CLASS says which class each is"
        )
