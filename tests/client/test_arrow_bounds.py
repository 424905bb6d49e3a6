"""Arrow streams and Parquet files that hold, or say that they hold, more than they should."""

from __future__ import annotations

import io
import itertools
import os
import struct
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fedlens.data.formats import arrow_batches
from fedlens.data.formats.arrow_batches import batches
from fedlens.data.formats.formats import open_source
from fedlens.data.formats.records import SourceError
from fedlens.data.labelled import tables
from fedlens.data.labelled.parquet_pages import _header, row_groups, unpacked, unpacked_groups
from fedlens.data.labelled.tables import read_rows, read_table
from fedlens.data.labelled.thrift import CompactReader, ThriftError
from fedlens.privatizers.private_data import PrivateDataError

MEBIBYTE = 1 << 20


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


# Arrow streams


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_stream_reads_like_a_plain_one(tmp_path, compression):
    table = pyarrow.table({"image": [os.urandom(90) + bytes(900)] * 70, "label": ["a", "b"] * 35})
    plain, packed = (
        stream(tmp_path / f"{name}.arrow", table, name if name != "plain" else None)
        for name in ("plain", compression)
    )
    assert packed.stat().st_size < plain.stat().st_size
    found = [[batch.to_pylist() for batch in batches(path)] for path in (plain, packed)]
    assert found[0] == found[1] and [len(rows) for rows in found[0]] == [64, 6]


def test_a_compressed_stream_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = stream(tmp_path / "a.arrow", pictures_of([bytes(MEBIBYTE)] * 40), "zstd")
    assert path.stat().st_size < MEBIBYTE
    monkeypatch.setattr(arrow_batches, "LARGEST_PART", 41 * MEBIBYTE)
    assert sum(batch.num_rows for batch in batches(path)) == 40
    monkeypatch.setattr(arrow_batches, "LARGEST_PART", 40 * MEBIBYTE)
    with pytest.raises(SourceError, match=r"batch 0 unpacks to 4\d{7} bytes .*max_chunksize=1000"):
        read(path)


@pytest.mark.parametrize(
    ("said", "answer"),
    [(1 << 62, "unpacks to 4611686"), (1 << 40, "unpacks to 1099511"), (-5, "below zero")],
)
def test_a_buffer_that_lies_about_its_size_is_refused(tmp_path, said, answer):
    path = stream(tmp_path / "a.arrow", pictures_of([bytes(MEBIBYTE)]), "zstd")
    content, packed = path.read_bytes(), b"\x28\xb5\x2f\xfd"
    before, after = (struct.pack("<q", size) + packed for size in (MEBIBYTE, said))
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    with pytest.raises(SourceError, match=answer):
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


def test_rows_that_take_no_bytes_are_bounded(tmp_path, monkeypatch):
    path = stream(tmp_path / "a.arrow", pyarrow.table({"image": pyarrow.nulls(123_457)}))
    content = path.read_bytes()
    assert len(content) < 1000 and content.count(struct.pack("<q", 123_457)) == 3
    path.write_bytes(content.replace(struct.pack("<q", 123_457), struct.pack("<q", 1 << 40)))
    with pytest.raises(SourceError, match="has 1099511627776 values"):
        read(path)
    within = pyarrow.FixedSizeListArray.from_arrays(pyarrow.nulls(5000), 5000)
    stream(path, pyarrow.table({"image": within}))
    monkeypatch.setattr(arrow_batches, "MOST_VALUES", 4999)
    with pytest.raises(SourceError, match="has 5000 values"):
        read(path)


def test_one_value_for_many_rows_is_read_for_few_at_once(tmp_path, monkeypatch):
    places = pyarrow.array(np.zeros(200, np.int32))
    column = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([bytes(MEBIBYTE)]))
    path = stream(tmp_path / "a.arrow", pictures_of(column), "zstd")
    monkeypatch.setattr(arrow_batches, "BYTES_AT_ONCE", 3 * MEBIBYTE)
    assert {batch.num_rows for batch in batches(path)} == {3, 2}
    assert len(read(path)) == 200


def test_a_picture_in_which_a_part_stands_for_many_is_refused(tmp_path):
    places = pyarrow.array(np.zeros(200, np.int32))
    words = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([bytes(MEBIBYTE)]))
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 200], pyarrow.int32()), words)
    path = stream(tmp_path / "a.arrow", pictures_of(lists), "zstd")
    with pytest.raises(SourceError, match="a part may stand for many; write plain bytes"):
        read(path)
    other = pyarrow.table({"image": [b"x"], "label": ["a"], "other": lists})
    (found,) = read(stream(path, other))  # a column that is not read may be so
    assert found.picture == b"x"


# Parquet files


def parquet_of(path, pictures, **more):
    column = pyarrow.array([{"bytes": one, "path": "x.png"} for one in pictures])
    parquet.write_table(pictures_of(column), path / "train-00000-of-00001.parquet", **more)


def test_a_row_group_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_batches, "LARGEST_PART", 10_000)
    parquet_of(
        tmp_path, [bytes(900)] * 32 + [os.urandom(900) for _ in range(32)], row_group_size=32
    )
    with pytest.raises(SourceError, match=r"row group 1 unpacks to \d+ bytes .*smaller ones"):
        read(tmp_path)


def test_one_large_value_for_many_rows_is_not_unpacked_for_many_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_batches, "BYTES_AT_ONCE", 3 * MEBIBYTE)
    parquet_of(tmp_path, [bytes(MEBIBYTE)] * 200, use_dictionary=True)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < MEBIBYTE
    assert max({batch.num_rows for batch in batches(file)}) <= 3
    monkeypatch.setattr(arrow_batches, "BYTES_AT_ONCE", 0)
    assert {batch.num_rows for batch in batches(file)} == {1}


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("words", [True, False])
def test_pages_and_footer_agree_on_sound_files(tmp_path, compression, version, words):
    source = np.random.default_rng(1)
    table = pyarrow.table({
        "number": source.normal(size=3000),
        "text": [f"{n % 7}" * (n % 50) if n % 5 else None for n in range(3000)],
        "list": [[n] * (n % 4) for n in range(3000)],
    })  # fmt: skip
    path = tmp_path / "t.parquet"
    parquet.write_table(
        table, path, compression=compression, data_page_version=version, use_dictionary=words,
        row_group_size=1000, data_page_size=2000, write_page_checksum=True,
    )  # fmt: skip
    with parquet.ParquetFile(path) as file, path.open("rb") as content:
        for number, columns in enumerate(row_groups(content)):
            group = file.metadata.row_group(number)
            stated = [group.column(place) for place in range(group.num_columns)]
            assert [one.name for one in columns] == [one.path_in_schema for one in stated]
            assert [one.packed for one in columns] == [one.total_compressed_size for one in stated]
            found = [unpacked(content, replace(one, size=0)) for one in columns]
            assert [one.size for one in found] == [one.total_uncompressed_size for one in stated]
            assert [one.values for one in found] == [one.num_values for one in stated]
    assert number == 2


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


def test_a_footer_that_says_less_than_the_pages_is_not_believed(tmp_path, monkeypatch):
    noise = [os.urandom(500) + bytes(2 * MEBIBYTE) for _ in range(4)]
    parquet_of(tmp_path, noise, compression="zstd", use_dictionary=False, write_statistics=False)
    (file,) = tmp_path.iterdir()
    lying(file)
    monkeypatch.setattr(arrow_batches, "LARGEST_PART", 8 * MEBIBYTE)
    with pytest.raises(SourceError, match=r"row group 0 unpacks to 8\d{6} bytes"):
        read(tmp_path)
    texts = pyarrow.table({"word": [str(row) * 1000 for row in range(2000)]})
    path = tmp_path / "t.parquet"
    parquet.write_table(
        texts, path, compression="zstd", use_dictionary=False, write_statistics=False
    )
    lying(path)
    monkeypatch.setattr(tables, "MOST_BYTES", 2 * MEBIBYTE)
    for reader in (read_table, lambda one: list(read_rows(one))):
        with pytest.raises(PrivateDataError, match="unpacks to over 1 GiB"):
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
    monkeypatch.setattr(tables, "BYTES_AT_ONCE", 5 * 110_000)
    assert tables._rows_at_once(path, list(unpacked_groups(path))) in (4, 5)


def test_many_values_in_few_bytes_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    lists = pyarrow.array([[7] * 5000, [7] * 5000])
    parquet.write_table(pyarrow.table({"image": lists, "label": ["a", "b"]}), path)
    monkeypatch.setattr(arrow_batches, "MOST_VALUES", 9_999)
    with pytest.raises(SourceError, match="row group 0 has 10000 values"):
        list(batches(path))


def test_damaged_page_headers_are_one_line_and_never_more(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"word": ["a", "b"] * 50, "n": list(range(100))}), path)
    content = path.read_bytes()
    for place, value in itertools.product(range(4, 60, 2), (0x7F, 0xFF)):
        path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        for read_it in (read_table, lambda one: list(batches(one))):
            try:
                read_it(path)
            except (PrivateDataError, SourceError, pyarrow.ArrowException, OSError) as error:
                assert len(str(error).splitlines()[0]) < 1000


def test_statistics_that_do_not_fit_are_one_error_and_do_not_end_the_process(tmp_path):
    """pyarrow's own `metadata.row_group(0).column(1)` aborts on this file."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"n": [1.0], "image": [b"x"], "label": ["a"]}), path)
    content = path.read_bytes()
    text, double = b"\x15\x0c\x25", b"\x15\x0a\x25"  # kinds of a column in the schema
    assert content.count(text) == 2
    swapped = content.replace(text, double, 1)
    for changed in (swapped, content):
        path.write_bytes(changed)
        for reader in (read_table, lambda one: list(batches(one))):
            if changed is content:
                reader(path)
                continue
            with pytest.raises((PrivateDataError, pyarrow.ArrowException, OSError)):
                reader(path)


def test_structs_end_and_numbers_wrap_round_as_elsewhere():
    with pytest.raises(ThriftError, match="too deep"):
        CompactReader(b"\x1c" * 5000).struct({})
    with pytest.raises(ThriftError, match="too deep"):
        CompactReader(b"\x19" + b"\x19" * 5000).struct({})
    with pytest.raises(ThriftError, match="header does not end"):
        _header(io.BytesIO(b"\x18\xff\xff\x03" + bytes(40)), 0, 44)
    with pytest.raises(ThriftError, match="kind 5 in place of 12"):
        CompactReader(b"\x19\x15\x02\x00").struct({1: {}})
    # a field of 64 bits has no say over one of 32; numbers wrap round as they do in C++
    header = b"\x25" + varint(70) + b"\x06\x04" + varint(9) + b"\x15\x80\x80\x80\x80\x20\x00"
    assert CompactReader(header).struct({}) == {(2, 5): 70, (2, 6): 9, (3, 5): 0}
    # truth values lie in the field's kind, or a byte each; maps and sets are gone past
    more = b"\x11\x12\x19\x21\x01\x02\x1b\x01\x85\x01a\x04\x1a\x15\x02\x13\x07\x17" + bytes(8)
    assert CompactReader(more + b"\x15\x02\x00").struct({}) == {(8, 5): 1}
