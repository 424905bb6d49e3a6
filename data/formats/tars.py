"""WebDataset shards: tar files in which members of one name, but for the ending, are one record."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from fedlens.data.formats.dicom import SUFFIXES as DICOM_SUFFIXES
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

ENDINGS = (".tar", ".tar.gz", ".tgz")
MOST_TEXT = 2**20
"""Bytes of a member of text."""


def tar_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of one shard, or of all shards of a folder by name.

    Nothing is unpacked onto the disk and no member's name is used as a path. Values: ``label`` (of
    ``.cls``), the fields of ``.json`` that are texts or numbers, ``txt`` of ``.txt``, and ``key``.
    Members that are no plain files are passed over. ``train-000.tar`` is of the part ``train``.

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
        folder, slash, name = member.name.rpartition("/")
        stem, ending = _key_and_ending(name)
        if not stem or not ending:
            continue
        if (now := folder + slash + stem) != key:
            if members:
                yield _record(shard, key, members, part)
            key, members = now, {}
        content = _content(tar, member, ending)
        if content is not None:
            members[f".{ending.lower()}"] = content
        else:
            why = f"a member .{ending[:20]}, which is not read"
            yield UnusableRecord(f"{shard.name} {member.name[-200:]}", why, quiet=True)
    if members:
        yield _record(shard, key, members, part)


def _key_and_ending(name: str) -> tuple[str, str]:
    """A member's key and what follows its first dot; numbers between dots are of the key.

    ``scan.2024.001.png`` is ``scan.2024.001`` and ``png``; ``one.seg.png`` is ``one``, ``seg.png``.
    """
    stem, _, ending = name.partition(".")
    words = ending.split(".")
    while len(words) > 1 and words[0].isdecimal():
        stem, words = f"{stem}.{words[0]}", words[1:]
    return stem, ".".join(words)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> bytes | None:
    """A member's bytes; none of kinds that are not read, or where it is too large."""
    kind = f".{ending.lower()}"
    picture = kind in SUFFIXES or kind in DICOM_SUFFIXES
    if not picture and kind not in (".cls", ".json", ".txt"):
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
        return _is_shard(path)
    return any(_is_shard(one) for one in path.iterdir())


WEBDATASET = DatasetSpec(
    "WebDataset shards",
    format=SourceFormat(
        _fits, tar_records, users=("user", "user_id", "patient_id", "client_id", "writer_id")
    ),
)
