"""People's own records: labelled folders, arrays and series, sound, wrong and hostile."""

from __future__ import annotations

import csv
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image

from fedlens.data.attributes import load_private
from fedlens.data.attributes.options import without_path
from fedlens.data.labelled.labels import FEW_OWNERS, TEST_PART, parts_of
from fedlens.data.labelled.pictures import UnreadablePictureError, looked_at, read_square
from fedlens.data.registry import load
from fedlens.privatizers.private_data import PrivateDataError, Split

KINDS, HOUSES = ("cat", "dog"), ("green", "red", "blue")
Row = dict[str, Any]


def write_manifest(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as stream:
        lines = csv.DictWriter(stream, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)


def picture(path: Path, value: int | tuple[int, ...], size: tuple[int, int], mode: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def a_folder(
    root: Path, people: int = 40, size: tuple[int, int] = (20, 20), mode: str = "L"
) -> list[Row]:
    """Three pictures a person, one in each house; grey tells person and house."""
    rows = []
    for one in range(3 * people):
        name = f"pictures/{one:03}.png"
        value = one if mode == "L" else (one, 9, 9)
        picture(root / name, value, size, mode)
        rows.append(
            {"file": name, "kind": KINDS[one // 3 % 2], "house": HOUSES[one % 3], "who": one // 3}
        )
    write_manifest(root / "manifest.csv", rows)
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a_folder(tmp_path)
    return tmp_path


def named(root: Path, *more: str) -> str:
    return ",".join([f"folder:{root}", "utility=kind", "sensitive=house", *more])


def parts(split: Split) -> tuple[Any, Any, Any]:
    return split.train, split.attack, split.test


def shades(part: Any) -> list[int]:
    return ((part.records[:, 0, 0, 0] + 1) * 127.5).round().int().tolist()


def test_a_labelled_folder_is_read_as_it_is(folder: Path) -> None:
    split = load_private(named(folder, "owner=who"))
    assert split.train.shape == (1, 20, 20)
    assert split.train.utility_names == KINDS and split.train.sensitive_names == tuple(
        sorted(HOUSES)
    )
    found = []
    for part in parts(split):
        for shade, use, hidden, owner in zip(
            shades(part), part.utility.tolist(), part.sensitive.tolist(),
            part.owners.tolist(), strict=True,
        ):  # fmt: skip
            assert part.utility_names[use] == KINDS[shade // 3 % 2]
            assert part.sensitive_names[hidden] == HOUSES[shade % 3]
            found.append((shade, owner))
    assert sorted(shade for shade, _ in found) == list(range(120))
    assert len({owner for _, owner in found}) == 40


def test_no_owner_is_in_two_parts_and_few_are_counted_out(tmp_path: Path) -> None:
    """Owners whose pictures have different attributes stay together."""
    a_folder(tmp_path)
    name = named(tmp_path, "owner=who")
    found = [{shade // 3 for shade in shades(part)} for part in parts(load_private(name))]
    assert found[0].isdisjoint(found[1] | found[2]) and found[1].isdisjoint(found[2])
    assert [len(part) for part in found] == [16, 16, 8]
    other = [{shade // 3 for shade in shades(part)} for part in parts(load_private(name, seed=1))]
    assert other != found


def test_the_first_records_of_a_part_stand_for_all_of_it(tmp_path: Path) -> None:
    """People's files are often sorted; a quick look takes the first of each part."""
    a_folder(tmp_path, people=100, size=(16, 16))
    split = load_private(f"folder:{tmp_path},utility=kind,sensitive=house,owner=who")
    for part in (split.train, split.attack, split.test):
        grey = part.records.flatten(1).mean(1)
        first, rest = grey[: len(part) // 2].mean(), grey[len(part) // 2 :].mean()
        assert abs(first - rest) < 0.5 * grey.std(), "grey rises with the files' order"
        assert part.owners is not None


def test_of_many_owners_others_never_move_anybody() -> None:
    keys = [f"person {number}".encode() for number in range(3 * FEW_OWNERS)]
    every = parts_of(keys, 0, owned=True)
    assert np.array_equal(parts_of(keys[FEW_OWNERS:], 0, owned=True), every[FEW_OWNERS:])
    assert abs(np.mean(every == TEST_PART) - 0.2) < 0.05


def test_without_owners_equal_pictures_are_never_in_two_parts(tmp_path: Path) -> None:
    rows = a_folder(tmp_path)
    for row in rows[:60]:
        twin = row | {"file": row["file"].replace("pictures", "twins")}
        content = (tmp_path / row["file"]).read_bytes()
        (tmp_path / "twins").mkdir(exist_ok=True)
        (tmp_path / twin["file"]).write_bytes(content)
        rows.append(twin)
    write_manifest(tmp_path / "manifest.csv", rows)
    seen = [set(shades(part)) for part in parts(load_private(named(tmp_path)))]
    assert seen[0].isdisjoint(seen[1] | seen[2]) and seen[1].isdisjoint(seen[2])


@pytest.mark.parametrize(
    ("size", "mode", "asked", "shape", "said"),
    [
        ((16, 16), "L", (), (1, 16, 16), ""),
        ((64, 64), "RGB", (), (3, 64, 64), ""),
        ((28, 28), "RGB", ("colour=grey",), (1, 28, 28), ""),
        ((28, 28), "L", ("colour=rgb",), (3, 28, 28), ""),
        ((100, 60), "L", (), (1, 32, 32), "100 x 60 are cut to their middle square"),
        ((30, 30), "L", (), (1, 32, 32), "scaled to 32 x 32"),
        ((90, 90), "L", ("side=48",), (1, 48, 48), "scaled to 48 x 48"),
    ],
)
def test_sizes_and_colours(
    tmp_path: Path,
    size: tuple[int, int],
    mode: str,
    asked: tuple[str, ...],
    shape: tuple[int, ...],
    said: str,
) -> None:
    a_folder(tmp_path, 30, size, mode)
    split = load_private(named(tmp_path, "owner=who", *asked))
    assert split.train.shape == shape
    resizing = [note for note in split.notes if "scaled to" in note]
    assert len(resizing) == bool(said) and said in " ".join(resizing)


def test_a_manifest_may_be_parquet_and_numbers_are_ordered(tmp_path: Path) -> None:
    rows = a_folder(tmp_path)
    (tmp_path / "manifest.csv").unlink()
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    columns["age"] = [(8, 10, 9.5)[place % 3] for place in range(len(rows))]
    parquet.write_table(pyarrow.table(columns), tmp_path / "people.parquet")
    split = load_private(f"folder:{tmp_path},utility=kind,sensitive=age,owner=who")
    assert split.train.sensitive_names == ("8.0", "9.5", "10.0")


def test_what_cannot_be_read_is_counted_named_and_left_out(folder: Path) -> None:
    (folder / "pictures" / "000.png").write_text("no picture")
    whole = (folder / "pictures" / "001.png").read_bytes()
    (folder / "pictures" / "001.png").write_bytes(whole[:-24])
    (folder / "pictures" / "002.png").unlink()
    (folder / "pictures" / "003.png").write_bytes(b"")
    text = (
        (folder / "manifest.csv")
        .read_text()
        .replace("pictures/004.png,dog,red", "pictures/004.png,dog,")
    )
    (folder / "manifest.csv").write_text(text)
    split = load_private(named(folder, "owner=who"))
    assert sum(map(len, parts(split))) == 115
    whys = (
        "no picture of a known kind, whatever its name says",
        "cannot be decoded",
        "no such file",
        "empty",
    )
    for place, why in enumerate(whys):
        (unread,) = (note for note in split.notes if why in note)
        assert unread.startswith("1 left out") and f"00{place}.png" in unread
    (lacking,) = (note for note in split.notes if "no value in house" in note)
    assert "1 left out" in lacking and "004.png" in lacking


def test_a_limit_is_said_and_takes_from_everywhere(folder: Path) -> None:
    split = load_private(named(folder, "owner=who", "limit=60"))
    taken = [shade for part in parts(split) for shade in shades(part)]
    assert len(taken) == 60 and max(taken) > 90
    assert any("60 of 120 pictures" in note for note in split.notes)


def _no_column(root: Path) -> str:
    return named(root).replace("house", "colour")


def _one_value(root: Path) -> str:
    text = (root / "manifest.csv").read_text()
    (root / "manifest.csv").write_text(text.replace("red", "blue").replace("green", "blue"))
    return named(root)


def _measurement(root: Path) -> str:
    return f"folder:{root},utility=kind,sensitive=file"


def _leaves(root: Path) -> str:
    text = (root / "manifest.csv").read_text()
    (root / "manifest.csv").write_text(text.replace("pictures/000.png", "../outside.png"))
    picture(root.parent / "outside.png", 1, (20, 20), "L")
    return named(root)


def _absolute(root: Path) -> str:
    text = (root / "manifest.csv").read_text()
    (root / "manifest.csv").write_text(text.replace("pictures/000.png", "/etc/hostname"))
    return named(root)


def _link(root: Path) -> str:
    picture(root.parent / "outside.png", 1, (20, 20), "L")
    (root / "pictures" / "000.png").unlink()
    (root / "pictures" / "000.png").symlink_to(root.parent / "outside.png")
    return named(root)


def _manifest_outside(root: Path) -> str:
    return named(root, "manifest=../manifest.csv")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that claims to be this large."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", head), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    )


def _bomb(root: Path) -> str:
    (root / "pictures" / "000.png").write_bytes(bomb(9000, 9000))
    return named(root)


def _greater_bomb(root: Path) -> str:
    (root / "pictures" / "000.png").write_bytes(bomb(60000, 60000))
    return named(root)


def _empty(root: Path) -> str:
    (root / "empty").mkdir()
    return named(root / "empty")


def _no_rows(root: Path) -> str:
    (root / "manifest.csv").write_text("file,kind,house\n")
    return named(root)


def _ragged(root: Path) -> str:
    with (root / "manifest.csv").open("a") as stream:
        stream.write("pictures/000.png,cat\n")
    return named(root)


def _all_broken(root: Path) -> str:
    for path in (root / "pictures").iterdir():
        path.write_text("")
    return named(root)


def _rare(root: Path) -> str:
    text = (root / "manifest.csv").read_text().replace(",blue,39", ",violet,39")
    (root / "manifest.csv").write_text(text)
    return named(root, "owner=who")


def _side(root: Path) -> str:
    return named(root, "side=30")


def _unknown(root: Path) -> str:
    return named(root, "sied=32")


def _no_utility(root: Path) -> str:
    return f"folder:{root},sensitive=house"


def _no_folder(root: Path) -> str:
    return named(root / "nowhere")


def _two_manifests(root: Path) -> str:
    (root / "manifest.csv").rename(root / "a.csv")
    (root / "b.csv").write_text("file\n")
    return named(root)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_no_column, "no column 'colour', which sensitive= names; there are file, house, kind"),
        (_one_value, "sensitive has one value only, 'blue'"),
        (_measurement, "sensitive has 120 values, such as pictures/000.png"),
        (_manifest_outside, r"manifest=\.\./manifest.csv leads out of"),
        (_empty, "has no table; give one manifest.csv"),
        (_no_rows, "has no rows under its line of names"),
        (_all_broken, "no readable picture"),
        (_rare, "'violet' occurs 1 times, and none of them is in the part for"),
        (_side, "side=30 must be a multiple of 4 from 16 to 64"),
        (_unknown, "'sied=32' is no option"),
        (_no_utility, "which column is the label.*--utility.*behind a path: ,label=COLUMN"),
        (_no_folder, "does not exist"),
        (_two_manifests, "has a.csv, b.csv; .*name the table itself as the path"),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(folder: Path, broken: Any, message: str) -> None:
    with pytest.raises(PrivateDataError, match=message) as caught:
        load_private(broken(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (_leaves, "a path that leads out of the folder"),
        (_absolute, "a path that leads out of the folder"),
        (_link, "a path that leads out of the folder"),
        (_bomb, "a picture of over 64 million pixels"),
        (_greater_bomb, "a picture of over 64 million pixels"),
        (_ragged, "another number of values than the table has names"),
    ],
)
def test_what_may_not_be_read_is_never_opened_and_said(folder: Path, broken: Any, why: str) -> None:
    split = load_private(broken(folder))
    ragged = broken is _ragged
    assert sum(map(len, parts(split))) == 119 + ragged
    assert ragged or 0 not in [shade for part in parts(split) for shade in shades(part)]
    (said,) = (note for note in split.notes if why in note)
    assert said.startswith("1 left out") and "manifest.csv line" in said


def test_a_pipe_is_no_picture_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    end = os.open(tmp_path / "pipe.png", os.O_RDWR)  # so that a reader would find nothing, not wait
    os.write(end, b"no picture")
    for read in (looked_at, lambda path: read_square(path, 16, 1)):
        with pytest.raises(UnreadablePictureError, match="no plain file"):
            read(tmp_path / "pipe.png")
    os.close(end)


def test_a_path_may_have_commas(tmp_path: Path) -> None:
    root = tmp_path / "a, b=c"
    a_folder(root)
    assert load_private(named(root, "owner=who")).train.shape == (1, 20, 20)
    assert without_path(named(root)) == "folder,utility=kind,sensitive=house"
    assert without_path("mixture:0.4") == "mixture:0.4" and without_path("orl:48") == "orl:48"


def arrays(path: Path, **more: Any) -> Path:
    source = np.random.default_rng(1)
    found: dict[str, Any] = {
        "images": source.integers(0, 255, (90, 28, 28), dtype=np.uint8),
        "kind": np.arange(90) % 2,
        "house": np.array(HOUSES)[np.arange(90) % 3],
        "who": np.arange(90) // 2,
    }
    np.savez(path, **{key: value for key, value in (found | more).items() if value is not None})
    return path


def test_arrays_by_name(tmp_path: Path) -> None:
    name = f"npz:{arrays(tmp_path / 'a.npz')},utility=kind,sensitive=house,owner=who"
    split = load_private(name)
    assert sum(map(len, parts(split))) == 90 and split.train.shape == (1, 28, 28)
    assert split.train.sensitive_names == tuple(sorted(HOUSES))
    last = np.zeros((90, 40, 40, 3), np.uint8)
    last[..., 0] = np.arange(90)[:, None, None]
    colour = arrays(tmp_path / "b.npz", images=last)
    split = load_private(f"npz:{colour},utility=kind,sensitive=house,owner=who,side=16")
    assert split.train.shape == (3, 16, 16)
    assert (split.train.records[:, 1:] == -1).all()


def test_series_in_arrays_have_an_attribute_of_each_step(tmp_path: Path) -> None:
    load_, who = np.random.default_rng(2).random((80, 24)) * 900, np.arange(80)
    path = arrays(
        tmp_path / "s.npz", images=None, load=load_, home=(load_ > 450).astype(int), who=who
    )
    split = load_private(f"npz:{path},records=load,sensitive=home,owner=who,unit=1000")
    part = split.train
    assert part.shape == (24, 1) and part.sensitive.shape == (len(part), 24)
    assert torch.equal(part.sensitive, (part.records[..., 0] > 0.45).long())
    assert part.unit == 1000 and part.low >= 0 and part.high < 1


@pytest.mark.parametrize(
    ("more", "columns", "message"),
    [
        ({}, "utility=kind,sensitive=nothing", "no array 'nothing'; there are images, kind"),
        ({"images": np.zeros((90, 28, 28))}, "utility=kind,sensitive=house", "has type float64"),
        (
            {"kind": np.arange(7)},
            "utility=kind,sensitive=house",
            "kind has type .*one whole number",
        ),
        (
            {"house": np.array([{}] * 90)},
            "utility=kind,sensitive=house",
            "no readable .npz.*Python objects in it",
        ),
        ({}, "sensitive=house", "which array is utility"),
    ],
)
def test_a_broken_archive_is_refused(
    tmp_path: Path, more: dict[str, Any], columns: str, message: str
) -> None:
    path = arrays(tmp_path / "a.npz", **more)
    with pytest.raises(PrivateDataError, match=message):
        load_private(f"npz:{path},{columns}")


@pytest.mark.parametrize("kind", ["text", "scalar", "password", "unknown packing"])
def test_an_archive_of_other_things_is_refused(tmp_path: Path, kind: str) -> None:
    path = arrays(tmp_path / "a.npz", images=None)
    content = io.BytesIO()
    np.save(content, np.zeros((90, 28, 28), np.uint8) if kind != "scalar" else np.uint8(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("images.npy", b"no array" if kind == "text" else content.getvalue())
    whole = bytearray(path.read_bytes())
    entry = whole.rindex(b"PK\x01\x02")  # of the last member, in the directory
    local = whole.rindex(b"PK\x03\x04")
    if kind == "password":
        whole[entry + 8] |= 1
        whole[local + 6] |= 1
    if kind == "unknown packing":
        whole[entry + 10] = whole[local + 8] = 97
    path.write_bytes(whole)
    with pytest.raises(PrivateDataError, match=r"write it with numpy\.savez") as caught:
        load_private(f"npz:{path},utility=kind,sensitive=house")
    assert "\n" not in str(caught.value)


def test_an_archive_that_unpacks_to_too_much_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = arrays(tmp_path / "a.npz", images=np.zeros((90, 28, 28), np.uint8))
    monkeypatch.setattr("fedlens.data.labelled.arrays.MOST_BYTES", 90 * 28 * 28)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("was unpacked"))
    with pytest.raises(PrivateDataError, match="unpacks to over"):
        load_private(f"npz:{path},utility=kind,sensitive=house")


def wide(path: Path, homes: int = 40) -> None:
    source = np.random.default_rng(3)
    rows = [
        {"home": one, "pets": one % 3, **{f"h{hour}": source.random() * 50 for hour in range(12)}}
        for one in range(homes)
    ]
    rows[5]["h3"] = ""
    write_manifest(path, rows)


def test_wide_series(tmp_path: Path) -> None:
    wide(tmp_path / "w.csv")
    split = load_private(f"series:{tmp_path / 'w.csv'},sensitive=pets,owner=home")
    part = split.train
    assert part.shape == (12, 1) and part.sensitive_classes == 3
    assert (part.sensitive == part.sensitive[:, :1]).all() and part.utility_classes == 1
    assert sum(map(len, parts(split))) == 39
    assert any("row 6" in note for note in split.notes)
    assert part.unit == 30.0 and any("divided by 30" in note for note in split.notes)
    assert part.low <= float(part.records.min()) and float(part.records.max()) <= part.high


def test_long_series_are_cut_and_ordered(tmp_path: Path) -> None:
    rows = [
        {"meter": f"m{one}", "time": step, "watts": 100 * one + step, "up": int(step % 8 < 4)}
        for one in range(30)
        for step in range(20)
    ]
    np.random.default_rng(4).shuffle(rows)  # type: ignore[arg-type]
    write_manifest(tmp_path / "l.csv", rows)
    columns = "sensitive=up,series=meter,step=time,value=watts,steps=8,unit=1"
    split = load_private(f"series:{tmp_path / 'l.csv'},{columns}")
    seen: list[set[int]] = []
    for part in parts(split):
        steps = part.records[..., 0].round().int()
        assert (steps.diff(dim=1) == 1).all() and torch.isin(
            steps[:, 0] % 100, torch.tensor([0, 8])
        ).all()
        assert torch.equal(part.sensitive, (steps % 100 % 8 < 4).long())
        seen.append(set((steps[:, 0] // 100).tolist()))
    assert sum(map(len, parts(split))) == 60, "two pieces of eight of each twenty steps"
    assert seen[0].isdisjoint(seen[1] | seen[2]), "the pieces of a series are in one part"


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n1,2\n", "sensitive=b", "neither columns of steps .* nor columns 'series'"),
        ("t0,t1,t2,t3,s\n1,2,x,4,0\n", "sensitive=s", "row 1, column t2: 'x' is no number"),
        ("t0,t1,t2,t3,s\n1,2,,4,0\n", "sensitive=s", "no series has a number at each step"),
        ("t0,t1,t2,t3,s\n1,2,3,4,0\n", "sensitive=q", "no column 'q'"),
        ("t0,t1,t2,t3,s\n1,2,3,4,0\n", "sensitive=s", "one value only"),
        ("t0,t1,t2,t3,s\n0,0,0,0,0\n", "sensitive=s", "every value is 0"),
        ("series,step,value,s\na,1,2,0\na,1,3,0\n", "sensitive=s", "series 'a' has a step twice"),
        ("t0,t1,t2,t3,s\n1,2,3,4,0\n", "sensitive=s,unit=-1", "unit=-1 must be"),
        ("t0,t0\n1,2\n", "sensitive=s", "names each column, each differently"),
        ("\xff\xfe", "sensitive=s", "table|columns"),
    ],
)
def test_broken_series_are_refused(tmp_path: Path, text: str, columns: str, message: str) -> None:
    (tmp_path / "s.csv").write_text(text, encoding="latin-1")
    with pytest.raises(PrivateDataError, match=message):
        load_private(f"series:{tmp_path / 's.csv'},{columns}")


def test_a_run_takes_a_labelled_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a_folder(tmp_path, size=(40, 28))
    data = load(named(tmp_path, "owner=who", "side=28"))
    assert data.name.startswith("folder:") and data.class_names == KINDS
    assert data.shape == (1, 28, 28) and data.user_ids is not None
    assert data.train_sensitive is not None and int(data.train_sensitive.max()) == 2
    split = load_private(named(tmp_path, "owner=who", "side=28"))
    test = sorted(data.test_images[:, 0, 0, 0].tolist())
    assert test == sorted(shades(split.test)), "the test set is what seed 0 scores on"
    owner = dict(zip(data.train_images[:, 0, 0, 0] // 3, data.user_ids, strict=True))
    assert len(set(owner.values())) == len(owner), "each owner has a number of its own"
    assert "middle square" in caplog.text
    assert load(named(tmp_path, "side=48")).shape == (1, 48, 48)


def test_the_faces_zip_is_found_by_its_path(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "orl_faces.zip", "w") as archive:
        for person in (1, 2):
            for number in range(1, 11):
                content = io.BytesIO()
                Image.new("L", (92, 112), 20 * person + number).save(content, format="PPM")
                archive.writestr(f"s{person}/{number}.pgm", content.getvalue())
    for name in (f"orl:{tmp_path},side=16", f"orl:{tmp_path / 'orl_faces.zip'},side=16"):
        assert load_private(name).train.shape == (1, 16, 16)
    with pytest.raises(PrivateDataError, match=r"'16' is no option.*side=48"):
        load_private(f"orl:{tmp_path},16")
    with pytest.raises(PrivateDataError, match="nowhere does not exist"):
        load_private("orl:nowhere")


def test_few_people_who_score_filters_are_the_test_of_a_simulation(tmp_path: Path) -> None:
    """So a filter that a run trained is scored on nobody whom the run met."""
    rows = ["file,label,who,sex"]
    for place in range(60):
        Image.new("L", (16, 16), 4 * place).save(tmp_path / f"{place}.png")
        rows.append(f"{place}.png,{place % 2},person {place // 3},{'fm'[place // 2 % 2]}")
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    name = f"manifest:{tmp_path},user=who,sensitive=sex"
    tested = load(name).test_images
    assert len(tested) == 12  # of four of twenty people
    assert set(shades(load_private(name).test)) == set(tested[:, 0, 0, 0].tolist())


@pytest.mark.parametrize("more", ["", ",limit=40"])
@pytest.mark.parametrize("labels", [{"labelled": False}, {"partly": True}, {}])
def test_people_without_labels_move_nobody_who_scores_filters(
    tmp_path: Path, labels: dict[str, bool], more: str
) -> None:
    """Filters read labelled records, and not all of many; a run may read others."""
    keys = [f"person {number}".encode() for number in range(30)]
    scoring = np.flatnonzero(parts_of(keys, 0, owned=True) == TEST_PART).tolist()
    rows = ["file,label,who,sex"]
    for place in range(90):
        Image.new("L", (16, 16), 2 * place).save(tmp_path / f"{place}.png")
        label = "" if place // 3 in scoring[2:] else f"{place % 2}"
        rows.append(f"{place}.png,{label},person {place // 3},{'fm'[place // 2 % 2]}")
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    name = f"manifest:{tmp_path},user=who,sensitive=sex"
    scored = {shade // 6 for shade in shades(load_private(f"{name}{more}").test)}
    trained = load(name, **labels).train_images[:, 0, 0, 0]
    assert scored
    assert not scored & set((trained // 6).tolist())
