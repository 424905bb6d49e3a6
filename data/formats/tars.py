"""WebDataset shards: tar files in which members of one name, but for the ending, are one record."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from fedlens.data.formats.dicom import SUFFIXES as DICOM_SUFFIXES
from fedlens.data.formats.packed import TARS as ENDINGS
from fedlens.data.formats.packed import is_webdataset
from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    known_part,
    reason,
)
from fedlens.data.formats.unpacking import BoundedReader, is_gzip
from fedlens.data.labelled.pictures import MOST_BYTES, SUFFIXES
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.tars import DAMAGED, CautiousMember, EndingStream

TEXTS = (".cls", ".json", ".txt")
MOST_TEXT = 2**20
"""Bytes of a member of text."""


def tar_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of one shard, or of all shards of a folder by name.

    Nothing is unpacked onto the disk and no member's name is used as a path. Values: ``label`` (of
    ``.cls``), the fields of ``.json`` that are texts or numbers, ``txt`` of ``.txt``, and ``key``.
    Members that are no plain files are passed over. ``train-000.tar`` is of the part ``train``. A
    key ends at the first dot, as WebDataset's do, or where that leaves no known ending at the last.

    Raises:
        SourceError: a shard cannot be read on, or there is none.
    """
    shards = [path] if path.is_file() else sorted(p for p in path.iterdir() if _is_shard(p))
    if not shards:
        raise SourceError(f"{path}: has no shards; add files {', '.join(ENDINGS)}")
    for shard in shards:
        yield from _shard(shard)


def _shard(shard: Path) -> Iterator[Found]:
    try:
        with shard.open("rb") as plain:
            stream: IO[bytes] = plain
            if is_gzip(shard):
                packed = gzip.GzipFile(fileobj=plain)
                stream = cast(IO[bytes], BoundedReader(cast(IO[bytes], packed), shard))
            ending = cast(IO[bytes], EndingStream(stream))
            with tarfile.open(fileobj=ending, mode="r|", tarinfo=CautiousMember) as tar:
                yield from _records(shard, tar)
    except DAMAGED as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{shard}: cannot be read on ({reason(error)}); write the shard anew"
        ) from None


def _records(shard: Path, tar: tarfile.TarFile) -> Iterator[Found]:
    key, members = "", dict[str, bytes]()
    part = known_part(shard.name)
    for member in tar:
        tar.members = []  # type: ignore[attr-defined] # else each one's head is kept
        if not member.isreg():
            continue
        now, ending = _key(member.name, key)
        if not now:
            continue
        if now != key:
            if members:
                yield _record(shard, key, members, part)
            key, members = now, {}
        content = _content(tar, member, ending)
        if content is not None:
            members[f".{ending.lower()}"] = content
        else:
            why = f"a member .{ending[:20]}, which is not read"
            yield UnusableRecord(f"{shard.name} {member.name[-200:]}", why, True, part)
    if members:
        yield _record(shard, key, members, part)


def _key(name: str, before: str) -> tuple[str, str]:
    """A member's key and ending; empty where it has none."""
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.partition(".")
    if not stem or not dot:
        return "", ""
    key = folder + slash + stem
    longer, _, short = last.rpartition(".")
    if _is_known(f".{ending.lower()}") or not _is_known(f".{short.lower()}") or key == before:
        return key, ending
    return folder + slash + longer, short


def _is_known(kind: str) -> bool:
    return kind in SUFFIXES or kind in DICOM_SUFFIXES or kind in TEXTS


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> bytes | None:
    """A member's bytes; none of kinds that are not read, or where it is too large."""
    kind = f".{ending.lower()}"
    picture = kind in SUFFIXES or kind in DICOM_SUFFIXES
    if not picture and kind not in TEXTS:
        return None
    if member.size > (MOST_BYTES if picture else MOST_TEXT):
        return b""
    file = tar.extractfile(member)
    return None if file is None else file.read()


def _record(shard: Path, key: str, members: dict[str, bytes], part: str) -> Found:
    where = f"{shard.name} {key[:200]}"
    pictures = [kind for kind in members if kind in SUFFIXES or kind in DICOM_SUFFIXES]
    if len(pictures) != 1:
        return UnusableRecord(where, "no picture" if not pictures else "several pictures")
    if not members[pictures[0]]:
        return UnusableRecord(where, "a picture that is empty or over 64 MiB")
    try:
        values = _values(members)
    except (ValueError, RecursionError, AttributeError):
        return UnusableRecord(where, "texts that cannot be read")
    return SourceRecord(where, members[pictures[0]], {**values, "key": key}, part)


def _values(members: dict[str, bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    if ".json" in members:
        fields = json.loads(members[".json"])
        plain = (str, int, float, bool)
        found |= {str(name): str(value) for name, value in fields.items() if type(value) in plain}
    for kind, name in ((".cls", "label"), (".txt", "txt")):
        if kind in members:
            found[name] = members[kind].decode("utf-8").strip()
    return found


def _is_shard(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(ENDINGS)


def _fits(path: Path) -> bool:
    if path.is_file():
        return _is_shard(path) and is_webdataset(path)
    shards = [one for one in path.iterdir() if _is_shard(one)]
    return bool(shards) and is_webdataset(min(shards))


WEBDATASET = DatasetSpec(
    "WebDataset shards",
    format=SourceFormat(
        _fits, tar_records, users=("user", "user_id", "patient_id", "client_id", "writer_id")
    ),
)
