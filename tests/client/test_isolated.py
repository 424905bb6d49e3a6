"""Files that make a library crash, hang or ask for the moon: one line, and bounded memory."""

from __future__ import annotations

import itertools
import os
import resource
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fedlens.data.formats.formats import open_source
from fedlens.data.formats.records import SourceError, UnusableRecord
from fedlens.data.isolated import process
from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.labelled import tables
from fedlens.data.labelled.tables import read_rows, read_table
from fedlens.privatizers.private_data import PrivateDataError

MEBIBYTE = 1 << 20
READERS = "misbehaving:"


def read(path):
    return list(open_source(path, "hf", owner="each").records())


def stream(path, table, compression=None):
    """A table as one batch of an Arrow stream."""
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with (
        pyarrow.OSFile(str(path), "wb") as sink,
        pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    return path


def pictures_of(values):
    return pyarrow.table({"image": values, "label": ["round"] * len(values)})


def a_parquet(path, pictures, **more):
    column = pyarrow.array([{"bytes": one, "path": "x.png"} for one in pictures])
    parquet.write_table(pictures_of(column), path, **more)
    return path


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(process, "MEMORY", 200 * MEBIBYTE)


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("grow", r"needs over \d+ MiB of memory"),
        ("crash", "damaged .SIGABRT"),
        ("hang", "takes over 2 seconds"),
        ("flood", "one of its parts is over"),
        ("raise_a_page", "^first line$"),
    ],
)
def test_what_goes_wrong_in_a_reader_is_one_line(tmp_path, monkeypatch, reader, said):
    monkeypatch.setattr(process, "SECONDS", 2 if reader == "hang" else 60)
    monkeypatch.setattr(process, "MOST_CONTENT", MEBIBYTE)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    with pytest.raises(IsolatedError, match=said) as caught:
        list(read_isolated(READERS + reader, Path(__file__)))
    assert "\n" not in str(caught.value)


def test_what_a_library_prints_is_no_piece(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    found = list(read_isolated(READERS + "print_words", Path(__file__), "grün"))
    assert found == [({"word": "grün"}, "grün".encode())]


def test_a_reader_ends_with_who_reads(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    pieces = read_isolated(READERS + "hang", Path(__file__))
    next(pieces)
    begun = time.monotonic()
    pieces.close()
    assert time.monotonic() - begun < 10


# Arrow streams


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_stream_reads_like_a_plain_one(tmp_path, compression):
    table = pictures_of([os.urandom(90) + bytes(900)] * 70)
    plain, packed = (
        stream(tmp_path / f"{name}.arrow", table, name if name != "plain" else None)
        for name in ("plain", compression)
    )
    assert packed.stat().st_size < plain.stat().st_size
    found = [[one.picture for one in read(path)] for path in (plain, packed)]
    assert found[0] == found[1] == table["image"].to_pylist()


def test_a_compressed_stream_that_unpacks_to_too_much_is_refused(tmp_path, little_memory):
    path = stream(tmp_path / "a.arrow", pictures_of([bytes(MEBIBYTE)] * 300), "zstd")
    assert path.stat().st_size < MEBIBYTE
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match=r"needs over 20\d MiB of memory .*smaller parts"):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize("said", [1 << 62, 1 << 40, -5])
def test_a_buffer_that_lies_about_its_size_is_refused(tmp_path, said):
    path = stream(tmp_path / "a.arrow", pictures_of([bytes(MEBIBYTE)]), "zstd")
    content, packed = path.read_bytes(), b"\x28\xb5\x2f\xfd"
    before, after = (struct.pack("<q", size) + packed for size in (MEBIBYTE, said))
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    with pytest.raises(SourceError, match="cannot be read on"):
        read(path)


def test_places_outside_a_batch_are_not_followed(tmp_path):
    """Unchecked they give what else is in memory, or end the process."""
    path = stream(tmp_path / "a.arrow", pictures_of([b"abc", b"defg", b"hi"]))
    before, after = struct.pack("<4i", 0, 3, 7, 9), struct.pack("<4i", 0, 3, 400, 404)
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    with pytest.raises(SourceError, match="out of bounds"):
        read(path)


def test_rows_that_take_no_bytes_are_bounded(tmp_path):
    path = stream(tmp_path / "a.arrow", pyarrow.table({"image": pyarrow.nulls(123_457)}))
    content = path.read_bytes()
    assert len(content) < 1000 and content.count(struct.pack("<q", 123_457)) == 3
    path.write_bytes(content.replace(struct.pack("<q", 123_457), struct.pack("<q", 1 << 40)))
    with pytest.raises(SourceError, match="says that it has 1099511627776 rows"):
        read(path)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_one_value_for_many_rows_is_unpacked_for_few_at_once(tmp_path, little_memory, kind):
    """200 rows that share a mebibyte are 200 MiB if they are unpacked together."""
    places = pyarrow.array(np.zeros(200, np.int32))
    column = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([bytes(MEBIBYTE)]))
    path = tmp_path / f"a.{kind}"
    if kind == "arrow":
        stream(path, pictures_of(column), "zstd")
    else:
        parquet.write_table(pictures_of(column), path)
    assert path.stat().st_size < MEBIBYTE
    assert sum(1 for _ in open_source(path, "hf", owner="each").records()) == 200


def test_a_picture_in_which_a_part_stands_for_many_is_refused(tmp_path, little_memory):
    places = pyarrow.array(np.zeros(200, np.int32))
    words = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([bytes(MEBIBYTE)]))
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 200], pyarrow.int32()), words)
    path = stream(tmp_path / "a.arrow", pictures_of(lists), "zstd")
    with pytest.raises(SourceError, match="MiB of memory"):
        read(path)
    other = pyarrow.table({"image": [b"x"], "label": ["a"], "other": lists})
    (found,) = read(stream(path, other))  # a column that is not read may be so
    assert found.picture == b"x"


def test_pixels_and_oversized_pictures_of_a_stream(tmp_path):
    values = [[[1, 2], [3, 4]], [[256, 0], [0, 0]], None, [[0, 0], [0, -1]]]
    found = read(stream(tmp_path / "a.arrow", pictures_of(values)))
    assert found[0].picture.tolist() == [[1, 2], [3, 4]]
    assert [one.why for one in found[1:]] == ["no picture"] * 3
    (large,) = read(stream(tmp_path / "b.arrow", pictures_of([bytes(65 * MEBIBYTE)])))
    assert isinstance(large, UnusableRecord) and "64 MiB" in large.why


# Parquet files


def varint(value, length=0):
    """A number as Thrift's compact protocol has it, padded to a length."""
    value, found = 2 * value, []
    while value or not found or len(found) < length:
        found.append((value & 127) | 128)
        value >>= 7
    found[-1] &= 127
    return bytes(found)


def lying(path):
    """Have a file's footer say that everything unpacks to ten bytes."""
    with parquet.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
    sizes = {group.total_byte_size}
    sizes |= {group.column(place).total_uncompressed_size for place in range(group.num_columns)}
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:]
    for size in sizes:
        assert varint(size) in footer
        footer = footer.replace(varint(size), varint(10, len(varint(size))))
    path.write_bytes(content[:start] + footer)
    with parquet.ParquetFile(path) as file:
        assert file.metadata.row_group(0).total_byte_size == 10


def test_a_footer_that_says_less_than_the_pages_is_not_believed(tmp_path, little_memory):
    noise = [os.urandom(500) + bytes(60 * MEBIBYTE) for _ in range(6)]
    path = a_parquet(
        tmp_path / "a.parquet", noise, compression="zstd", use_dictionary=False,
        write_statistics=False,
    )  # fmt: skip
    lying(path)
    with pytest.raises(SourceError, match="MiB of memory"):
        read(path)
    texts = pyarrow.table({"word": [str(row) * 500_000 for row in range(100, 200)]})
    parquet.write_table(
        texts, path, compression="zstd", use_dictionary=False, write_statistics=False
    )
    lying(path)
    for reader in (read_table, lambda one: list(read_rows(one))):
        with pytest.raises(PrivateDataError, match="MiB of memory"):
            reader(path)


def test_texts_that_share_their_beginnings_are_bounded_by_what_is_held(tmp_path, monkeypatch):
    """A page of such texts says how large it is packed that way: 100 KiB here, for 20 MB."""
    begun = "y" * 100_000
    table = pyarrow.table({"word": [f"{begun}{row}" for row in range(200)]})
    path = tmp_path / "t.parquet"
    parquet.write_table(
        table, path, use_dictionary=False, write_statistics=False,
        column_encoding={"word": "DELTA_BYTE_ARRAY"},
    )  # fmt: skip
    monkeypatch.setattr(tables, "MOST_BYTES", 8 * MEBIBYTE)
    with pytest.raises(PrivateDataError, match="its texts are over 1 GiB; split it"):
        read_table(path)
    assert len(list(read_rows(path))) == 200


def test_damaged_parquet_files_are_one_line_and_never_more(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"word": ["a", "b"] * 50, "n": list(range(100))}), path)
    content = path.read_bytes()
    for place, value in itertools.product(range(4, 60, 16), (0x7F, 0xFF)):
        path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        for read_it in (read_table, read):
            try:
                read_it(path)
            except (PrivateDataError, SourceError) as error:
                assert len(str(error)) < 1000 and "\n" not in str(error)


def test_statistics_that_do_not_fit_are_one_error_and_do_not_end_the_process(tmp_path):
    """pyarrow's own `metadata.row_group(0).column(1)` aborts on this file."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"n": [1.0], "image": [b"x"], "label": ["a"]}), path)
    content = path.read_bytes()
    text, double = b"\x15\x0c\x25", b"\x15\x0a\x25"  # kinds of a column in the schema
    assert content.count(text) == 2
    for changed in (content.replace(text, double, 1), content):
        path.write_bytes(changed)
        for reader in (read_table, read):
            if changed is content:
                reader(path)
                continue
            with pytest.raises((PrivateDataError, SourceError)):
                reader(path)
