"""Zip and tar archives of any other format: unpacked within limits to a folder that goes again."""

from __future__ import annotations

import gzip
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from fedlens.data.dataset import DatasetError
from fedlens.data.formats.dicom import SUFFIXES as SCANS
from fedlens.data.formats.layouts import is_junk
from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    UnusableRecord,
    column_named,
    reason,
)
from fedlens.data.formats.unpacking import FREE_BYTES, LARGEST_RATIO, BoundedReader, is_gzip
from fedlens.data.labelled.pictures import SUFFIXES
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.tars import DAMAGED, CautiousMember, EndingStream

ZIPS, TARS = (".zip",), (".tar", ".tar.gz", ".tgz")
MOST_MEMBERS = 5_000_000
LOOKED_AT = 1000
"""Members of a tar that say whether it is WebDataset's."""
BLOCK = 2**20
_COMPANIONS = (".cls", ".json", ".txt")
_OUTSIDE = re.compile(r"^([\\/]|[A-Za-z]:)|(^|[\\/])\.\.([\\/]|$)")
LINK = "a link in an archive, which is not followed"


def is_packed(path: Path) -> bool:
    """Whether a file is a zip, or a tar that is none of WebDataset's; by its name and members."""
    name = path.name.lower()
    if not path.is_file():
        return False
    if name.endswith(ZIPS):
        return True
    return name.endswith(TARS) and not is_webdataset(path)


def is_webdataset(tar: Path) -> bool:
    """Whether a tar has a picture beside a member of its name with a label; by its first members.

    One that cannot be read is: its reader says why.
    """
    endings: dict[str, set[str]] = {}
    try:
        with _tar_members(tar) as members:
            for number, member in enumerate(members):
                if number >= LOOKED_AT:
                    break
                stem, dot, ending = member.name.rpartition(".")
                if not dot or not member.isreg():
                    continue
                found = endings.setdefault(stem, set())
                kind = f".{ending.lower()}"
                found.add("picture" if kind in (*SUFFIXES, *SCANS) else kind)
                if "picture" in found and found & set(_COMPANIONS):
                    return True
    except (SourceError, *DAMAGED):
        return True
    return False


def packed_format(kind: str) -> SourceFormat:
    """A format that reads an archive's content as one of this kind."""
    from fedlens.data.registry import format_of

    def records(path: Path, columns: SourceColumns) -> Iterator[Found]:
        return packed_records(path, columns, kind)

    return replace(format_of(kind), fits=is_packed, records=records)


def packed_records(path: Path, columns: SourceColumns, kind: str = "") -> Iterator[Found]:
    """Records of an archive's content; ``label`` and ``user`` stand for its format's usual columns.

    Args:
        path: of the archive.
        columns: as in `SourceFormat`.
        kind: of the content; empty: found by its files.

    Raises:
        SourceError: it is damaged, under a password, names files outside itself, unpacks to over
            400 times its size, or its content is of no known format.
    """
    from fedlens.data.formats.formats import kind_of
    from fedlens.data.registry import format_of

    with tempfile.TemporaryDirectory(prefix="fedlens-unpacked-") as name:
        folder = Path(name)
        try:
            yield from _unpack(path, folder)
            content = _content(folder)
            inner = format_of(kind or kind_of(content))
            for found in inner.records(content, columns):
                yield (
                    found
                    if isinstance(found, UnusableRecord)
                    else replace(found, values=_with_usual(dict(found.values), inner))
                )
        except DatasetError as error:
            raise SourceError(str(error).replace(name, str(path))) from None


def _with_usual(values: dict[str, str], inner: SourceFormat) -> dict[str, str]:
    for name, usual in (("label", inner.labels), ("user", inner.users)):
        found = column_named(values, usual)
        if found and name not in values:
            values[name] = values[found]
    return values


def _content(folder: Path) -> Path:
    """The folder, or the only file or folder in it that is of a format."""
    from fedlens.data.formats.formats import unwrapped

    inside = [one for one in folder.iterdir() if not is_junk(one.name)]
    alone = len(inside) == 1 and inside[0].is_file()
    content = inside[0] if alone else unwrapped(folder)
    if is_packed(content):
        raise SourceError(f"{folder}: is an archive in an archive; unpack it yourself")
    return content


def _unpack(path: Path, folder: Path) -> Iterator[UnusableRecord]:
    try:
        if path.name.lower().endswith(ZIPS):
            _unpack_zip(path, folder)
        else:
            yield from _unpack_tar(path, folder)
    except (*DAMAGED, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{path}: cannot be unpacked ({reason(error)}); unpack it yourself, or pack it anew"
        ) from None


def _unpack_zip(path: Path, folder: Path) -> None:
    most = max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        members = [one for one in archive.infolist() if not one.is_dir()]
        if len(members) > MOST_MEMBERS:
            raise SourceError(f"{path}: has over {MOST_MEMBERS} files; unpack it yourself")
        if any(one.flag_bits & 1 for one in members):
            raise SourceError(f"{path}: is under a password; unpack it yourself")
        for member in members:
            name = member.filename
            name = name if "/" in name else name.replace("\\", "/")  # as tools of Windows write
            if name.endswith("/"):
                continue
            with archive.open(member) as stream:
                most -= _write(path, folder, name, stream, most)


def _unpack_tar(path: Path, folder: Path) -> Iterator[UnusableRecord]:
    most = max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)
    with _tar_members(path) as members:
        for number, member in enumerate(members):
            if number > MOST_MEMBERS:
                raise SourceError(f"{path}: has over {MOST_MEMBERS} members; unpack it yourself")
            if member.islnk() or member.issym():
                yield UnusableRecord(f"{path.name} {member.name[:200]}", LINK)
            elif member.isreg() and (stream := members.extractfile(member)) is not None:
                most -= _write(path, folder, member.name, stream, most)
            members.members = []  # type: ignore[attr-defined] # else each one's head is kept


def _write(path: Path, folder: Path, name: str, stream: IO[bytes], most: int) -> int:
    """Write a member to its place, and give its size.

    Raises:
        SourceError: its name leads out of the archive, or it is larger than may be.
    """
    if _OUTSIDE.search(name) or "\0" in name:
        raise SourceError(f"{path}: has a file named {name[:80]!r}, outside itself; pack it anew")
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with place.open("wb") as file:
        while block := stream.read(BLOCK):
            size += len(block)
            if size > most:
                raise SourceError(
                    f"{path}: unpacks to over {LARGEST_RATIO} times its size, as no data does; "
                    "unpack it yourself if you trust it"
                )
            file.write(block)
    return size


@contextmanager
def _tar_members(path: Path) -> Iterator[tarfile.TarFile]:
    with path.open("rb") as plain:
        stream: IO[bytes] = plain
        if is_gzip(path):
            packed = gzip.GzipFile(fileobj=plain)
            stream = cast(IO[bytes], BoundedReader(cast(IO[bytes], packed), path))
        ending = cast(IO[bytes], EndingStream(stream))
        with tarfile.open(fileobj=ending, mode="r|", tarinfo=CautiousMember) as tar:
            yield tar


PACKED = DatasetSpec("Zip or tar of another format", format=SourceFormat(is_packed, packed_records))
