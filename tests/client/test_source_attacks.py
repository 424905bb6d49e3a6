"""Hostile and damaged sources: named or refused, never a crash or a way out of the folder."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tarfile
import zipfile
import zlib

import layouts
import numpy as np
import pytest
from flwr.app import Context, RecordDict
from PIL import Image

from fedlens.client.contract import parse_contract
from fedlens.client.node.file import open_node_users
from fedlens.data.arrays import load_npz
from fedlens.data.formats.decoding import pixels_of
from fedlens.data.formats.formats import open_source
from fedlens.data.formats.records import SourceError, UnusableRecord
from fedlens.data.labelled.arrays import read_arrays
from fedlens.data.labelled.pictures import OversizedPictureError, UnreadablePictureError
from fedlens.foundation.errors import FedlensError

ROUNDS = int(os.environ.get("FEDLENS_FUZZ", "40"))
"""Damaged inputs a reader; more on demand: FEDLENS_FUZZ=25000."""
ISOLATED = ("hf", "svhn")
"""Read in a process of its own for each file, of which fewer are tried."""


def read(path, kind=""):
    source = open_source(path, kind, owner="each")
    return list(source.records())


def bomb(megabytes):
    """A PNG of a few kilobytes that claims, and gives, many pixels."""
    side = int((megabytes * 2**20) ** 0.5)
    head = struct.pack(">2I5B", side, side, 8, 0, 0, 0, 0)
    body = zlib.compressobj(9)
    data = b"".join(body.compress(bytes(side + 1)) for _ in range(side)) + body.flush()
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    made = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def test_a_decompression_bomb_is_not_unpacked(tmp_path):
    content = bomb(80)
    assert len(content) < 200_000
    with pytest.raises(OversizedPictureError):
        pixels_of(content, "x", 16, 1)
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(OversizedPictureError):
        pixels_of(path, "x", 16, 1)


def deflated_dicom(path, size):
    """A deflated DICOM file whose pixels unpack to so many zero bytes."""
    layouts.dicom(path, np.eye(16, dtype=int))
    plain, deflated = path.read_bytes(), b"1.2.840.10008.1.2.1.99"
    head = plain[: plain.index(b"1.2.840.10008.1.2.1\0")]
    head = head[:-2] + struct.pack("<H", len(deflated)) + deflated
    whole = 144 + struct.unpack("<I", plain[140:144])[0]
    rest = plain[plain.index(b"1.2.840.10008.1.2.1\0") + 20 : whole]
    deflater = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    body = deflater.compress(plain[whole : plain.index(b"\xe0\x7f\x10\x00")])
    body += deflater.compress(b"\xe0\x7f\x10\x00OW\0\0" + struct.pack("<I", size))
    body += deflater.compress(bytes(size))
    head = head[:140] + struct.pack("<I", len(head + rest) - 144) + head[144:]
    path.write_bytes(head + rest + body + deflater.flush())


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_deflated_dicom_is_unpacked_within_limits(tmp_path):
    deflated_dicom(tmp_path / "a" / "1.dcm", 512)
    (small,) = read(tmp_path, "dicom")
    assert pixels_of(small.picture, "x", 16, 1).shape == (1, 16, 16)
    deflated_dicom(tmp_path / "a" / "1.dcm", 80 * 2**20)
    content = (tmp_path / "a" / "1.dcm").read_bytes()
    assert len(content) < 200_000
    for picture in (content, tmp_path / "a" / "1.dcm"):
        with pytest.raises(OversizedPictureError, match="deflated and unpacks to over 64 MiB"):
            pixels_of(picture, "x", 16, 1)
    (left_out,) = read(tmp_path, "dicom")
    assert isinstance(left_out, UnusableRecord) and "unpacks to over" in left_out.why


def test_a_gzip_bomb_is_refused_before_it_fills_the_disk(tmp_path):
    head = struct.pack(">4I", 0x803, 400_000, 28, 28)
    with gzip.open(tmp_path / "train-images-idx3-ubyte.gz", "wb", 9) as file:
        file.write(head)
        for _ in range(300):
            file.write(bytes(2**20))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 0))
    with pytest.raises(SourceError, match="400 times its size"):
        read(tmp_path)


def test_a_tar_bomb_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        head = tarfile.TarInfo("a.bin")
        head.size = 300 * 2**20
        tar.addfile(head, io.BytesIO(bytes(head.size)))
    with pytest.raises(SourceError, match="400 times its size"):
        read(tmp_path)


def test_an_archive_that_unpacks_beyond_measure_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedlens.data.labelled.arrays.MOST_BYTES", 1000)
    layouts.medmnist(tmp_path / "m.npz")
    with pytest.raises(FedlensError, match="unpacks to over"):
        read(tmp_path / "m.npz")


@pytest.mark.law("input: no file crashes, hangs or runs code")
@pytest.mark.parametrize("members", [1, 4])
def test_arrays_that_unfold_beyond_measure_are_refused_before_they_are_read(
    tmp_path, monkeypatch, members
):
    """However many members share it: each of four is within what one alone may unfold to."""
    monkeypatch.setattr("fedlens.data.mapped_arrays.LARGEST_UNLOOKED", 3 * 2**20)
    path, sizes = tmp_path / "m.npz", 4 * 2**20 // members
    blank = np.zeros((sizes // 64, 1, 8, 8), np.uint8)
    names = {f"more{number}": blank for number in range(members - 1)}
    numbers = np.arange(len(blank))
    np.savez_compressed(path, images=blank, labels=numbers, users=numbers, classes=10, **names)
    assert path.stat().st_size < 2**20
    context = Context(1, 1, {"data": str(path)}, RecordDict(), {})
    for reader in (
        lambda: open_node_users(context),
        lambda: load_npz(path),
        lambda: read(path),
        lambda: read_arrays(path, path, ["images"]),
    ):
        with pytest.raises(FedlensError, match="would unfold from"):
            reader()


def test_pickled_arrays_are_never_opened(tmp_path):
    np.savez(tmp_path / "m.npz", images=np.array([{"a": 1}], dtype=object), labels=[0])
    with pytest.raises(SourceError, match="array of objects"):
        read(tmp_path / "m.npz")


def test_members_of_a_shard_are_no_paths(tmp_path):
    picture = layouts.png(layouts.pictures(1)[0])
    shard = tmp_path / "in" / "a.tar"
    members = [("../../out.png", picture), ("../../out.cls", b"0"), ("/etc/b.png", picture)]
    layouts.webdataset(shard, members)
    with tarfile.open(shard, "a") as tar:
        for kind, name in ((tarfile.SYMTYPE, "c.png"), (tarfile.LNKTYPE, "d.png")):
            head = tarfile.TarInfo(name)
            head.type, head.linkname = kind, "/etc/passwd"
            tar.addfile(head)
    found = list(open_source(shard, owner="one").records())
    assert [type(one).__name__ for one in found] == ["LabelledRecord", "UnusableRecord"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_links_that_lead_out_are_left_out(tmp_path):
    (tmp_path / "secret.png").write_bytes(layouts.png(layouts.pictures(1)[0]))
    inside = tmp_path / "set" / "a"
    inside.mkdir(parents=True)
    (inside / "x.png").symlink_to(tmp_path / "secret.png")
    (inside / "loop").symlink_to(tmp_path / "set")
    assert [one.why for one in read(tmp_path / "set")] == [
        "a link to a folder, which is not followed", "a link that leads out of the folder",
    ]  # fmt: skip


def test_folders_in_folders_end(tmp_path):
    deep = tmp_path / "set" / "a" / "/".join("b" * 12)
    deep.mkdir(parents=True)
    (deep / "x.png").write_bytes(b"")
    with pytest.raises(SourceError, match="deep"):
        read(tmp_path / "set", "tree")


@pytest.mark.parametrize("content", [b"", b"{", b'{"user_data": {"a": {"x": [[1', b"[" * 100_000])
def test_json_that_is_none_ends(tmp_path, content):
    (tmp_path / "all_data.json").write_bytes(content)
    with pytest.raises(SourceError, match="no JSON of LEAF"):
        read(tmp_path / "all_data.json")


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_user_of_leaf_without_end_is_not_read_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("fedlens.data.formats.leaf.MOST_TEXT", 2**21)
    path = tmp_path / "all_data.json"
    path.write_text('{"users": ["a"], "user_data": {"a": {"x": [' + "[]," * 2**20 + "[]]}}}")
    with pytest.raises(SourceError, match="one user has over 64 MiB"):
        read(path)


def test_odd_values_of_leaf_are_left_out(tmp_path):
    layouts.femnist(tmp_path / "x")
    path = tmp_path / "x" / "all_data_0.json"
    text = path.read_text().replace('"y": [0, 10, 36]', '"y": [-1, 99, "a"]')
    path.write_text(text.replace("[0.", "[NaN, 0.", 1))
    assert [type(one) for one in read(path)] == [UnusableRecord] * 3 + [type(read(path)[3])]


MAKERS = {
    "idx": layouts.emnist,
    "leaf": layouts.femnist,
    "cifar10": layouts.cifar10,
    "svhn": layouts.svhn,
    "celeba": layouts.celeba,
    "hf": layouts.hugging_face,
    "archive": lambda path: layouts.medmnist(path / "m.npz"),
    "webdataset": lambda path: layouts.webdataset(path / "a.tar"),
    "dicom": lambda path: layouts.dicom(path / "a" / "1.dcm", np.eye(16, dtype=int)),
}


def damaged(content, source):
    """A file's bytes with some turned, cut off, or put in."""
    found = bytearray(content)
    way = source.randrange(4)
    if way == 0:
        return bytes(found[: source.randrange(len(found) + 1)])
    for _ in range(source.randrange(1, 9)):
        place = source.randrange(max(1, min(len(found), source.choice((64, 512, 10**9)))))
        if way == 1 and found:
            found[place] = source.randrange(256)
        elif way == 2:
            found[place:place] = bytes(source.randrange(256) for _ in range(source.randrange(9)))
        elif found:
            found[place : place + 8] = source.choice(
                (b"\xff" * 8, b"\0" * 8, b"\x7f\xff\xff\xff" * 2)
            )
    return bytes(found)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.law("6: bad files are found while preparing")
def test_a_damaged_source_is_named_and_never_crashes(tmp_path, kind):
    """Any damage of any file: records, what is left out, or one error of ours in one line."""
    MAKERS[kind](tmp_path / "x")
    path = tmp_path / "x" / "m.npz" if kind == "archive" else tmp_path / "x"
    files = [one for one in (tmp_path / "x").rglob("*") if one.is_file()]
    whole = {file: file.read_bytes() for file in files}
    source = random.Random(f"{kind} 0")
    for _ in range(ROUNDS // 5 if kind in ISOLATED else ROUNDS):
        file = source.choice(files)
        file.write_bytes(damaged(whole[file], source))
        try:
            for found in open_source(path, kind, owner="each").records():
                if not isinstance(found, UnusableRecord):
                    pixels_of(found.picture, found.where, 16, 1)
        except FedlensError as error:
            assert len(str(error)) < 2000
        file.write_bytes(whole[file])


def test_damaged_pictures_of_every_format_are_named(tmp_path):
    picture, source = Image.fromarray(layouts.pictures(1, 40, 3)[0]), random.Random(1)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "JPEG2000", "TGA", "PCX", "SGI"):
        file = io.BytesIO()
        picture.convert("P" if kind == "GIF" else "RGB").save(file, kind)
        for _ in range(ROUNDS):
            try:
                found = pixels_of(damaged(file.getvalue(), source), "x", 16, 3)
            except (UnreadablePictureError, OversizedPictureError):
                continue
            assert found.shape == (3, 16, 16)


def test_damaged_contracts_are_one_error():
    text, source = 'name = "w"\nclasses = ["a", "b"]\n[image]\nside = 32\n', random.Random(2)
    for _ in range(5 * ROUNDS):
        content = damaged(text.encode(), source).decode("utf-8", "replace")
        try:
            parse_contract(content, "f")
        except FedlensError as error:
            assert str(error).startswith("f: ")


def test_damaged_tables_are_named_by_line(tmp_path):
    path, source = tmp_path / "manifest.csv", random.Random(3)
    text = "file,label,user\n" + "".join(f"{i}.png,a,u{i}\n" for i in range(20))
    for _ in range(ROUNDS):
        path.write_bytes(damaged(text.encode(), source))
        try:
            for found in open_source(tmp_path, "manifest", owner="each").records():
                assert "line" in found.where
        except FedlensError:
            continue


def test_a_zip_that_lies_about_a_members_size(tmp_path):
    path = tmp_path / "m.npz"
    layouts.medmnist(path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("train_images.npy")
    lie = content.replace(
        struct.pack("<2I", member.compress_size, member.file_size),
        struct.pack("<2I", member.compress_size, 200),
    )
    path.write_bytes(lie)
    with pytest.raises(FedlensError):
        read(path)
