"""Tables from others: small files that stand for a great deal, links that lead out, odd columns."""

from __future__ import annotations

import tracemalloc
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fedlens.data.attributes import load_private
from fedlens.data.labelled import tables
from fedlens.data.labelled.tables import read_table
from fedlens.privatizers.private_data import PrivateDataError

MEBIBYTE = 2**20


def test_parquet_and_csv_of_the_same_values_read_alike(tmp_path: Path) -> None:
    columns = {"name": ["b", " a ", "b", ""], "age": [3, 4, 5, 6], "day": [date(2026, 1, 2)] * 4}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", row_group_size=2)
    (tmp_path / "t.csv").write_text(
        "name,age,day\nb,3,2026-01-02\n a ,4,2026-01-02\nb,5,2026-01-02\n,6,2026-01-02\n"
    )
    found = [read_table(tmp_path / name).columns for name in ("t.parquet", "t.csv")]
    assert found[0] == found[1]


def test_what_is_missing_is_empty_and_what_is_nested_is_left_out(tmp_path: Path) -> None:
    columns = {
        "word": pyarrow.array(["x", None, "y"]).dictionary_encode(),
        "number": [1.5, None, float("nan")],
        "raw": [b"1", None, b"2"],
        "pair": [{"a": 1}, {"a": 2}, None],
        "many": [[1], [], None],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet").columns
    assert list(found) == ["word", "number", "raw"]
    assert found["word"] == ["x", "", "y"] and found["number"] == ["1.5", "", ""]


def test_a_long_text_in_many_rows_is_held_once(tmp_path: Path) -> None:
    """16 KiB of file: 100,000 rows of one text of a mebibyte would be 100 GB."""
    words = pyarrow.array(["z" * MEBIBYTE])
    places = pyarrow.array(np.zeros(100_000, np.int32))
    column = pyarrow.DictionaryArray.from_arrays(places, words)
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"word": column}), path, compression="zstd")
    assert path.stat().st_size < MEBIBYTE
    tracemalloc.start()
    found = read_table(path).column("word", "word=")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 100_000 and len(set(map(id, found))) == 1
    assert most < 32 * MEBIBYTE


def test_a_small_file_of_many_values_is_refused_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    zeros = pyarrow.array(np.zeros(5000, np.int8))
    parquet.write_table(pyarrow.table({f"t{step}": zeros for step in range(40)}), path)
    monkeypatch.setattr(tables, "MOST_CELLS", 199_999)
    with pytest.raises(PrivateDataError, match="over 199999 values; split it"):
        read_table(path)
    monkeypatch.setattr(tables, "MOST_CELLS", 200_000)
    assert len(read_table(path)) == 5000


def test_a_small_file_that_unpacks_to_much_is_refused_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    texts = pyarrow.table({"word": [str(row) * 1000 for row in range(2000)]})
    parquet.write_table(texts, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < MEBIBYTE
    monkeypatch.setattr(tables, "MOST_BYTES", 2 * MEBIBYTE)
    with pytest.raises(PrivateDataError, match="its texts are over 1 GiB"):
        read_table(path)


def test_a_csv_of_too_many_values_is_refused_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 100)
    monkeypatch.setattr(tables, "MOST_CELLS", 100)
    with pytest.raises(PrivateDataError, match="over 100 values"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("kept", ["manifest.csv", "other.csv"])
def test_a_manifest_that_links_out_of_its_folder_is_refused(kept: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "outside.csv").write_text("file,kind,house\na.png,x,y\n")
    (root / kept).symlink_to(tmp_path / "outside.csv")
    with pytest.raises(PrivateDataError, match=f"{kept} leads out of"):
        load_private(f"folder:{root},utility=kind,sensitive=house")
