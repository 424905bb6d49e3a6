"""How folders of pictures lie: which is of which part, which level names the class and the user.

Found by the folders' names alone, of which some are looked at: no picture is opened.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedlens.data.formats.records import (
    LINK_OUT,
    SourceColumns,
    SourceError,
    is_filler,
    whole_part,
)
from fedlens.foundation.unlabelled import is_mark

MOST_SORTED = 65_536
"""Names in one folder beyond which they are read as they lie: no list of them is kept."""
DEEPEST = 8
SAMPLED = 64
"""Folders of one level that are looked into to tell what the next one names."""
JUNK = ("__macosx", "@eadir", "$recycle.bin", "system volume information")
JUNK_FILES = ("thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r")
"""What systems leave behind, lower case; passed over like hidden names."""
ELSEWHERE = ".icloud"
"""Ending of the hidden file that stands for one which was not fetched from a cloud."""


@dataclass(frozen=True)
class Layout:
    """Where classes lie.

    Attributes:
        top: the folder that was given; files are called by their way from it.
        roots: folders in which classes (or users) lie, each with its part's name; empty: none.
        beside: folders beside the parts, which are of none of them.
        unlabelled: folders beside the parts that are called so: of the training part, their class
            is their name.
        user_first: whether folders are ``USER/.../CLASS`` rather than ``CLASS/USER``.
        level: how many folders lie above the class's, below a root.
        between: whether the folders below the class's are all called as one kind of file is
            (``images``), and name no user.
    """

    top: Path
    roots: tuple[tuple[str, Path], ...]
    beside: tuple[Path, ...] = ()
    unlabelled: tuple[Path, ...] = ()
    user_first: bool = False
    level: int = 0
    between: bool = False

    def values(self, folders: tuple[str, ...]) -> dict[str, str]:
        """``label``, ``user`` and ``below`` of a file, by the folders it lies in below its root.

        ``below`` is the folder below the class's, where the user's is above.
        """
        found = {"label": folders[self.level]} if len(folders) > self.level else {}
        below = folders[self.level + 1 + self.between :]
        if not self.user_first:
            return found | ({"user": below[0]} if below else {})
        return found | {"user": folders[0]} | ({"below": below[0]} if below else {})


def lay_out(top: Path, columns: SourceColumns) -> Layout:
    """How a folder lies, and what is told of it.

    A folder that holds nothing but one folder is walked through. Where folders are called as parts
    are (``train``, ``Test``, ``valid``), they are parts. Where some classes are agreed, the level
    that has them names the class. Where none are, ``USER/CLASS`` is told from ``CLASS/USER`` by
    fewer names that come again in several folders; ``columns.label`` says that it is not so.

    Raises:
        SourceError: a folder cannot be listed, or the class's is a link that leads out.
    """
    root = _walked_through(top, columns)
    below = sub_folders(root)
    for one in below:
        _check_link(top, one)
    parts = _parts(below, columns)
    if not parts:
        return _levelled(Layout(top, (("", root),)), columns)
    roots = tuple((part, _walked_through(folder, columns)) for part, folder in parts)
    named = {folder for _, folder in parts}
    beside = [one for one in below if one not in named]
    layout = _levelled(Layout(top, roots, tuple(beside)), columns)
    if layout.user_first:  # below it users would lie, not classes
        return layout
    marked = tuple(one for one in beside if is_mark(one.name) and not _has_class_of(layout, one))
    return replace(
        layout, beside=tuple(one for one in beside if one not in marked), unlabelled=marked
    )


def _has_class_of(layout: Layout, folder: Path) -> bool:
    """Whether a folder has folders called as the parts' classes: its own are no users then."""
    classes = {one.name for _, root in layout.roots for one in sub_folders(root)}
    return any(one.name in classes for one in sub_folders(folder))


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder, by name where there is not too much of it; hidden names left out."""
    try:
        with os.scandir(folder) as found:
            first: list[os.DirEntry[str]] = []
            for entry in found:
                if is_junk(entry.name):
                    continue
                first.append(entry)
                if len(first) > MOST_SORTED:
                    yield from first
                    first = []
                    yield from (one for one in found if not is_junk(one.name))
            yield from sorted(first, key=lambda entry: entry.name)
    except OSError as error:
        raise SourceError(
            f"{folder}: cannot be listed ({error.strerror}); fix its rights"
        ) from None


def sub_folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name."""
    return [Path(entry.path) for entry in entries(folder) if entry.is_dir()]


def holds_pictures(folder: Path, suffixes: tuple[str, ...], depth: int = 3) -> bool:
    """Whether a folder or one of its first folders has a picture by its ending."""
    below = []
    for number, entry in enumerate(entries(folder)):
        if number >= 16 * SAMPLED:
            break
        if entry.is_dir(follow_symlinks=False):
            below.append(Path(entry.path))
        elif entry.name.lower().endswith(suffixes):
            return True
    return depth > 0 and any(holds_pictures(one, suffixes, depth - 1) for one in below[:SAMPLED])


def is_junk(name: str) -> bool:
    """Whether a name is hidden or left behind by a system."""
    name = name.lower()
    hidden = name.startswith(".") and not name.endswith(ELSEWHERE)
    return hidden or name in JUNK or name in JUNK_FILES


def _check_link(top: Path, folder: Path) -> None:
    if folder.is_symlink() and not folder.resolve().is_relative_to(top.resolve()):
        raise SourceError(
            f"{folder}: is {LINK_OUT}; only what lies below it is read: copy or mount the pictures "
            "there"
        )


def _walked_through(folder: Path, columns: SourceColumns) -> Path:
    """The folder that has more than one folder, or pictures; classes and parts are not passed."""
    for _ in range(DEEPEST):
        found = list(entries(folder))
        below = [Path(one.path) for one in found if one.is_dir()]
        if len(below) != 1 or below[0].is_symlink() or not _is_wrapper(below[0], columns):
            return folder
        columns.told(f"all records lie below the folder {below[0].name!r}, which is passed through")
        folder = below[0]
    return folder


def _is_wrapper(only: Path, columns: SourceColumns) -> bool:
    """Whether the one folder in a folder is neither a class nor a part."""
    if whole_part(only.name) and not _same_again(only):
        return False
    if columns.is_class is not None:
        if columns.is_class(only.name):
            return False
        if _has_classes(only, columns.is_class):
            return True
    if is_filler(only.name):
        return True
    inner = sub_folders(only)[:SAMPLED]
    if _same_again(only) or any(whole_part(one.name) for one in inner):
        return True
    if len(inner) > 1 and any(sub_folders(one) for one in inner):
        return True
    if inner and columns.is_class is None:
        columns.told(
            f"one class, {only.name!r}, and its folders as users; if they are the classes, name "
            f"{only} as the path"
        )
    return False


def _has_classes(folder: Path, is_class: Callable[[str], bool]) -> bool:
    """Whether classes or parts lie in a folder, at most three folders down."""
    now = [folder]
    for _ in range(3):
        now = _below(now)
        if any(is_class(one.name) or whole_part(one.name) for one in now):
            return True
    return False


def _same_again(folder: Path) -> bool:
    """Whether all that a folder has is a folder of its own name, as some archives unpack."""
    return [one.name for one in sub_folders(folder)] == [folder.name]


def _parts(below: list[Path], columns: SourceColumns) -> list[tuple[str, Path]]:
    """Folders that are parts; none where they are classes."""
    is_class = columns.is_class
    below = [one for one in below if not is_mark(one.name)]
    if is_class is not None and below and all(is_class(one.name) for one in below):
        return []
    found = [(whole_part(one.name), one) for one in below if whole_part(one.name)]
    several = len({part for part, _ in found}) > 1
    no_class = is_class is not None and not any(is_class(one.name) for one in below)
    return found if several or no_class or len(found) == len(below) else []


def _levelled(layout: Layout, columns: SourceColumns) -> Layout:
    """The layout with the level of folders that names the class."""
    root = max((one for _, one in layout.roots), key=lambda one: len(sub_folders(one)))
    tops = sub_folders(root)
    if columns.is_class is not None:
        level = _level_of_classes(tops, columns.is_class)
    else:
        level = 0 if columns.label else _level_of_names(tops)
    if level:
        under = tops
        for _ in range(level + 1):
            under = _below(under)
        other = " (--user below takes the folders below the class's)" if under else ""
        columns.told(
            f"folders lie as USER/{'*/' * (level - 1)}CLASS: {_some(tops)} are users{other}"
        )
        return replace(layout, user_first=True, level=level)
    inner = _below(tops)
    fillers = {one.name for one in inner}
    if len(fillers) == 1 and is_filler(next(iter(fillers))):
        return replace(layout, between=True)
    if columns.is_class is None and len({one.name for one in inner}) < len(inner):
        columns.told(
            f"folders are taken as CLASS/USER: {_some(tops)} are classes, {_some(inner)} are users"
        )
    return layout


def _some(folders: list[Path]) -> str:
    names = list(dict.fromkeys(one.name for one in folders))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _below(folders: list[Path]) -> list[Path]:
    """The folders in some of these folders."""
    return [below for one in folders[:SAMPLED] for below in sub_folders(one)]


def _level_of_classes(tops: list[Path], is_class: Callable[[str], bool] | None) -> int:
    """How far down folders are called as classes; 0 where none are."""
    if is_class is None:
        return 0
    now = tops
    for level in range(3):
        if any(is_class(one.name) for one in now):
            return level
        now = _below(now)
    return 0


def _level_of_names(tops: list[Path]) -> int:
    """The next level with several names, where these are fewer and come again in several folders.

    A level of one name is passed over. 0 where the first level names the classes.
    """
    now = tops
    for level in range(1, 4):
        now = _below(now)
        times = Counter(one.name for one in now)
        if len(times) > 1:
            few = len(times) < len(tops) and min(times.values()) > 1
            return level if few and len(tops) > 2 else 0
    return 0
