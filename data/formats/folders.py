"""Folders of pictures: a sub-folder a class, below it pictures or a folder for each user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fedlens.data.formats.layouts import (
    DEEPEST,
    ELSEWHERE,
    Layout,
    entries,
    holds_pictures,
    lay_out,
)
from fedlens.data.formats.records import (
    LINK_OUT,
    TEST,
    TRAIN,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    start_of,
)
from fedlens.data.labelled.pictures import SUFFIXES
from fedlens.data.spec import DatasetSpec

CONVERTED = {
    **dict.fromkeys((".heic", ".heif", ".hif"), "JPEG or PNG"),
    **dict.fromkeys((".cr2", ".nef", ".arw", ".dng", ".raf", ".orf"), "JPEG or PNG"),
    **dict.fromkeys((".psd", ".svg", ".eps", ".ai", ".xcf", ".jxl", ".exr"), "JPEG or PNG"),
    **dict.fromkeys((".nii", ".nii.gz", ".mha", ".mhd", ".nrrd"), "PNG, slice by slice"),
    **dict.fromkeys((".svs", ".ndpi", ".mrxs", ".scn", ".czi"), "PNG, tile by tile"),
    **dict.fromkeys((".mp4", ".mov", ".avi", ".mkv", ".webm", ".mpg"), "PNG, frame by frame"),
    **dict.fromkeys((".npy", ".npz", ".mat", ".h5", ".hdf5", ".pt", ".pkl"), "PNG"),
}
"""Endings of pictures and films that are not read, and what their owner makes of them."""
_STARTS = (
    b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP  ",
)  # fmt: skip
_MASK = re.compile(
    r"(.+?)[ _-]?(?:mask|seg|segmentation|gt)(?:_\d+)?$|mask[ _-]?(.+)$", re.IGNORECASE
)


def files_below(folder: Path, depth: int = DEEPEST) -> Iterator[Path | UnusableRecord]:
    """Every file in a folder and its folders, by name; links to folders are not followed.

    Hidden names are left out.

    Raises:
        SourceError: a folder cannot be listed, or folders lie deeper than ``depth``.
    """
    for entry in entries(folder):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if not depth:
                raise SourceError(f"{path}: folders lie over {DEEPEST} deep; name one further down")
            yield from files_below(path, depth - 1)
        elif entry.is_dir():
            yield UnusableRecord(str(path), "a link to a folder, which is not followed")
        else:
            yield path


def is_picture(file: Path) -> bool:
    """Whether a file is one by its ending or, of another ending, by how it begins."""
    if file.suffix.lower() in SUFFIXES:
        return True
    if ending_of(file) in (*CONVERTED, ELSEWHERE):
        return False
    head = start_of(file)
    named = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return head.startswith(_STARTS) or named or head[128:] == b"DICM"


def ending_of(file: Path) -> str:
    """A file's ending, lower case, the inner one too where it is packed."""
    suffixes = [one.lower() for one in file.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def no_picture(file: Path, where: str) -> UnusableRecord:
    """What is said of a file that is no picture."""
    ending = ending_of(file)
    if ending == ELSEWHERE:
        return UnusableRecord(where, "a file that waits in a cloud; download it first")
    if ending in CONVERTED:
        return UnusableRecord(where, f"{ending}, which is not read; make it {CONVERTED[ending]}")
    named = ending if 1 < len(ending) <= 12 else "without an ending"
    return UnusableRecord(where, f"no picture: a file {named}", quiet=True)


def folder_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """``CLASS/*``, ``CLASS/USER/*`` or ``USER/CLASS/*``, each below parts or not.

    How they lie: `fedlens.data.formats.layouts`. A picture is one by its ending or its first bytes.
    Values: ``label``, ``user`` where there is a folder for it, and ``file``. What is no picture is
    left out for its reason.

    Raises:
        SourceError: there are no sub-folders, or no picture in them.
    """
    layout, found, why = lay_out(path, columns), False, dict[str, int]()
    for one in laid_out_files(layout):
        if isinstance(one, UnusableRecord):
            yield one
            continue
        part, file, folders = one
        where = str(file.relative_to(path))
        if _leads_out(file, path):
            record: Found = UnusableRecord(where, LINK_OUT)
        elif _is_mask(file):
            record = UnusableRecord(where, "a mask of a picture beside it", quiet=True)
        elif not (is_picture(file) or file.is_symlink()):
            record = no_picture(file, where)
        elif not folders:
            record = UnusableRecord(where, "a picture beside the folders of the classes")
        else:
            record = SourceRecord(where, file, {**layout.values(folders), "file": where}, part)
        found |= bool(folders) and not (isinstance(record, UnusableRecord) and record.quiet)
        if isinstance(record, UnusableRecord):
            why[record.why] = why.get(record.why, 0) + 1
        yield record
    if not found:
        there = "; ".join(f"{count}: {one}" for one, count in list(why.items())[:5])
        raise SourceError(
            f"{path}: has no pictures in sub-folders{f' ({there})' if there else ''}; put each "
            "class's pictures into a folder with its name, or add manifest.csv with a column for "
            "the file and one for the label"
        )


def picture_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Pictures without labels: ``root/*`` or ``root/USER/**``, below ``train`` and ``test`` or not.

    Values: ``user`` (the top folder's name, where there is one) and ``file``.

    Raises:
        SourceError: there is no picture.
    """
    parts = {name: path / name for name in (TRAIN, TEST) if (path / name).is_dir()}
    found = False
    for part, root in (parts if len(parts) == 2 else {"": path}).items():
        for file in files_below(root):
            if isinstance(file, UnusableRecord):
                yield file
                continue
            where = str(file.relative_to(path))
            if _leads_out(file, path):
                yield UnusableRecord(where, LINK_OUT)
            elif not (is_picture(file) or file.is_symlink()):
                yield no_picture(file, where)
            else:
                found = True
                folder, *below = file.relative_to(root).parts
                users = {"user": folder} if below else {}
                yield SourceRecord(where, file, {**users, "file": where}, part)
    if not found:
        raise SourceError(f"{path}: has no pictures; name the folder that they lie in")


def laid_out_files(
    layout: Layout,
) -> Iterator[tuple[str, Path, tuple[str, ...]] | UnusableRecord]:
    """Files with their part and the folders they lie in below its root; what is beside the parts.

    Raises:
        SourceError: as `files_below`.
    """
    roots = [(part, root, root) for part, root in layout.roots]
    roots += [(TRAIN, folder, folder.parent) for folder in layout.unlabelled]
    for part, folder, root in roots:
        for file in files_below(folder):
            if isinstance(file, UnusableRecord):
                where = str(Path(file.where).relative_to(layout.top))
                yield UnusableRecord(where, file.why)
            else:
                yield part, file, file.relative_to(root).parts[:-1]
    yield from files_beside(layout)


def files_beside(layout: Layout) -> Iterator[UnusableRecord]:
    """Files in folders beside the parts, which are left out."""
    for folder in layout.beside:
        for file in files_below(folder):
            if isinstance(file, Path):
                where = str(file.relative_to(layout.top))
                yield UnusableRecord(where, f"in {folder.name!r}, beside the parts", quiet=True)


def _is_mask(file: Path) -> bool:
    """Whether a file is called as the mask of a picture that lies beside it."""
    found = _MASK.match(file.stem)
    if found is None:
        return False
    stem = found[1] or found[2]
    return any(
        file.with_name(f"{stem}{ending}").is_file() for ending in (file.suffix, ".png", ".jpg")
    )


def _leads_out(file: Path, top: Path) -> bool:
    return file.is_symlink() and not file.resolve().is_relative_to(top.resolve())


def has_class_folders(path: Path) -> bool:
    """Whether a folder is a tree of pictures, whatever else lies in it: two folders with some."""
    with_some = [
        entry.path for entry in entries(path)
        if entry.is_dir(follow_symlinks=False) and holds_pictures(Path(entry.path), SUFFIXES)
    ]  # fmt: skip
    if len(with_some) == 1:
        return has_class_folders(Path(with_some[0]))
    return len(with_some) > 1


def _fits(path: Path) -> bool:
    """Whether a folder has folders, or pictures of any kind: it says why those are not read."""
    if not path.is_dir():
        return False
    return any(entry.is_dir() or _looks_so(Path(entry.path)) for entry in entries(path))


def _has_pictures(path: Path) -> bool:
    return path.is_dir() and holds_pictures(path, SUFFIXES)


PICTURES = DatasetSpec(
    "Pictures without labels, a folder a user",
    format=SourceFormat(_has_pictures, picture_records, labels=(), labelled=False, in_folders=True),
)


def _looks_so(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES or ending_of(file) in CONVERTED


TREE = DatasetSpec(
    "Class folders, resized", format=SourceFormat(_fits, folder_records, in_folders=True)
)
