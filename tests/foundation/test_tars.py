"""Sizes that tar headers lie about make no room, and no reader wait."""

from __future__ import annotations

import io
import tarfile
import time

import pytest

from fedlens.api.backups import BackupError, restore
from fedlens.data.formats.records import SourceColumns, SourceError
from fedlens.data.formats.tars import tar_records
from fedlens.foundation.tars import MOST_SIZE, CautiousMember, EndingStream


def member(name: str, size: int, kind: bytes = tarfile.REGTYPE, content: bytes = b"x") -> bytes:
    """A header of a member that says ``size``, and a block that it has."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT) + content.ljust(512, b"\0")


def names(data: bytes, mode: str = "r:") -> list[str]:
    file = io.BytesIO(data)
    with tarfile.open(fileobj=file, mode=mode, tarinfo=CautiousMember) as tar:
        return [entry.name for entry in tar]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [1 << 21, 1 << 36, 1 << 80])
@pytest.mark.parametrize("mode", ["r:", "r|"])
def test_no_header_makes_room_for_what_it_says(kind: bytes, size: int, mode: str) -> None:
    with pytest.raises(tarfile.ReadError, match="bytes is none of an archive's"):
        names(member("a", 1) + member("b", size, kind), mode)


def test_a_size_that_no_disk_has_is_refused_and_a_large_one_is_not() -> None:
    with pytest.raises(tarfile.ReadError):
        names(member("a", MOST_SIZE + 1))
    assert names(member("a" * 150, 1)) == ["a" * 150], "a long name goes before its member"


def test_a_shard_that_ends_within_a_member_is_told_at_once(tmp_path) -> None:
    """A member that is passed over was skipped block by block, were it of 64 TB."""
    shard = tmp_path / "train-000.tar"
    shard.write_bytes(member("0.bin", MOST_SIZE) + member("1.cls", 1))
    began = time.monotonic()
    with pytest.raises(SourceError, match="write the shard anew"):
        list(tar_records(shard, SourceColumns()))
    assert time.monotonic() - began < 5


def extended(size: int) -> bytes:
    """A sparse file whose map goes on in a block that the archive has ``size`` bytes of."""
    entry = tarfile.TarInfo("a")
    entry.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    block[482], block[148:156] = 1, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(size)


ODD = {
    "ends in a map": extended(0),
    "ends further on in a map": extended(100),
    "thousands of long names for one member": 3000
    * member("x", 4, tarfile.GNUTYPE_LONGNAME, b"abc"),
    "thousands of fields for one member": 3000 * member("x", 12, tarfile.XHDTYPE, b"12 path=abc\n"),
}


@pytest.mark.parametrize("odd", ODD)
def test_whatever_tarfile_raises_is_one_clear_error(tmp_path, odd: str) -> None:
    archive = tmp_path / "train-000.tar"
    archive.write_bytes(ODD[odd] + member("1.cls", 1))
    if "map" in odd:
        archive.write_bytes(ODD[odd])
    with pytest.raises(SourceError, match="write the shard anew"):
        list(tar_records(archive, SourceColumns()))
    with pytest.raises(BackupError, match="take another copy"):
        restore(archive, tmp_path / "out")


def test_a_stream_gives_what_there_is_and_then_ends() -> None:
    stream = EndingStream(io.BytesIO(b"abc"))
    assert stream.read(2) == b"ab" and stream.read(2) == b"c"
    with pytest.raises(EOFError):
        while True:
            assert stream.read(2) == b""
