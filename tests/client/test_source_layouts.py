"""Each published layout is read as its publisher describes it, pixel for pixel."""

from __future__ import annotations

import json

import layouts
import numpy as np
import pytest
from PIL import Image

from fedlens.data.formats.decoding import pixels_of
from fedlens.data.formats.formats import LabelledRecord, open_source
from fedlens.data.formats.records import SourceError, UnusableRecord
from fedlens.data.registry import load


def read(path, kind="", **columns):
    """All records of a source."""
    return list(open_source(path, kind, **columns).records())


def sound(path, kind="", **columns):
    return [one for one in read(path, kind, **columns) if isinstance(one, LabelledRecord)]


def pixels(record, side, channels):
    return pixels_of(record.picture, record.where, side, channels)


def same(records, found, side):
    """Each record's pixels are those that were written, where they have the size."""
    for record, one in zip(records, found, strict=True):
        channels = 1 if one.ndim == 2 else 3
        wanted = one[None] if channels == 1 else np.moveaxis(one, 2, 0)
        assert np.array_equal(pixels(record, side, channels), wanted)


def test_emnist_comes_upright_with_its_letters(tmp_path):
    found, labels = layouts.emnist(tmp_path / "e")
    records = sound(tmp_path / "e", needs_user=False)
    by_part = sorted(records, key=lambda one: one.part != "train")
    assert [one.label for one in by_part] == labels
    assert [one.part for one in by_part] == ["train"] * 4 + ["test"]
    same(by_part, found, 28)


def test_femnist_comes_user_by_user(tmp_path):
    found, labels, users = layouts.femnist(tmp_path / "data")
    records = sound(tmp_path / "data")
    assert [one.label for one in records] == labels
    assert [one.user for one in records] == users
    same(records, found, 28)


def test_a_leaf_file_is_read_in_small_blocks_too(tmp_path, monkeypatch):
    _, labels, _ = layouts.femnist(tmp_path / "data")
    monkeypatch.setattr("fedlens.data.formats.leaf.BLOCK", 7)
    assert [one.label for one in sound(tmp_path / "data")] == labels


def test_cifar_10_and_100(tmp_path):
    found, labels = layouts.cifar10(tmp_path / "ten")
    records = sound(tmp_path / "ten", needs_user=False)
    assert [one.label for one in records] == labels
    assert records[-1].part == "test"
    same(records, found, 32)
    found = layouts.cifar100(tmp_path / "hundred")
    records = sound(tmp_path / "hundred", label="fine", needs_user=False)
    assert [one.label for one in records] == ["baby"] * 3
    assert records[0].values["coarse"] == "fish"
    same(records, found, 32)


def test_the_pickled_cifar_is_never_opened(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x04.")
    with pytest.raises(SourceError, match=r"binary version.*pickle"):
        read(tmp_path, "cifar10")


def test_svhn_with_its_tens(tmp_path):
    found, labels = layouts.svhn(tmp_path / "s")
    records = sound(tmp_path / "s", needs_user=False)
    assert [one.label for one in records] == labels
    same(records, found, 32)


def test_svhn_reads_what_scipy_writes(tmp_path):
    from scipy.io import savemat

    found = layouts.pictures(4, 32, 3)
    arrays = {"X": np.moveaxis(found, 0, 3), "y": np.array([[1.0], [2], [10], [4]])}
    for packed in (True, False):
        savemat(tmp_path / "train_32x32.mat", arrays, do_compression=packed)
        records = sound(tmp_path, needs_user=False)
        assert [one.label for one in records] == ["1", "2", "0", "4"]
        same(records, found, 32)


def test_celeba_with_people_and_parts(tmp_path):
    found, labels = layouts.celeba(tmp_path / "c")
    records = sound(tmp_path / "c")
    assert [one.label for one in records] == labels
    assert [one.user for one in records] == ["70", "71", "72"]
    assert [one.part for one in records] == ["train", "validation", "test"]
    for record, one in zip(records, found, strict=True):
        assert np.array_equal(pixels(record, 64, 3), np.moveaxis(one[:64, :64], 2, 0))
    people = tmp_path / "c" / "identity_CelebA.txt"
    people.write_text("000009.png 1\n")
    with pytest.raises(SourceError, match="fetch both lists again"):
        read(tmp_path / "c")


@pytest.mark.parametrize("colour", [False, True])
def test_medmnist(tmp_path, colour):
    found, labels = layouts.medmnist(tmp_path / "bloodmnist.npz", colour)
    records = sound(tmp_path / "bloodmnist.npz", needs_user=False)
    order = {"train": 0, "validation": 1, "test": 2}
    records.sort(key=lambda one: order[one.part])
    assert [one.label for one in records] == labels
    same(records, found, 28)


def test_a_hugging_face_data_set_on_the_disk(tmp_path):
    found, labels, writers = layouts.hugging_face(tmp_path / "set")
    records = sound(tmp_path / "set")
    assert [one.label for one in records] == labels
    assert [one.user for one in records] == writers
    for record, one in zip(records, found, strict=True):
        assert np.array_equal(pixels(record, 28, 3).shape, (3, 28, 28)), one.shape
        assert np.array_equal(np.asarray(Image.open(__import__("io").BytesIO(record.picture))), one)


def test_partitions_of_flwr_datasets_name_their_users(tmp_path):
    for number in (0, 1, 10):
        layouts.hugging_face(tmp_path / f"partition_{number}", "train")
    records = sound(tmp_path, user="partition")
    assert [one.user for one in records] == ["0"] * 4 + ["1"] * 4 + ["10"] * 4


def test_parquet_files_with_pictures_inside(tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    found = layouts.pictures(2, 28)
    table = pyarrow.table({
        "image": [{"bytes": layouts.png(one), "path": "x.png"} for one in found],
        "label": ["a", "b"], "user": ["u", "v"],
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "train-00000-of-00001.parquet")
    records = sound(tmp_path)
    assert [(one.label, one.user, one.part) for one in records] == [
        ("a", "u", "train"), ("b", "v", "train"),
    ]  # fmt: skip
    same(records, found, 28)


def test_a_path_in_a_data_set_never_leads_out_of_it(tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    (tmp_path / "secret.png").write_bytes(layouts.png(layouts.pictures(1)[0]))
    place = tmp_path / "set"
    place.mkdir()
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    images = pyarrow.array([{"bytes": None, "path": "../secret.png"}], kind)
    table = pyarrow.table({"image": images, "label": ["a"], "user": ["u"]})
    parquet.write_table(table, place / "a.parquet")
    assert [type(one) for one in read(place)] == [UnusableRecord]


def test_webdataset_shards(tmp_path):
    found, labels, users = layouts.webdataset(tmp_path / "train-000.tar")
    records = sound(tmp_path)
    assert [one.label for one in records] == labels
    assert [one.user for one in records] == users
    same(records, found, 20)
    packed = __import__("gzip").compress((tmp_path / "train-000.tar").read_bytes())
    (tmp_path / "train-000.tar").unlink()
    (tmp_path / "train-001.tar.gz").write_bytes(packed)
    same(sound(tmp_path), found, 20)


def test_dicom_as_a_screen_shows_it(tmp_path):
    ramp = np.tile(np.arange(32) * 100, (32, 1))
    layouts.dicom(tmp_path / "healthy" / "1.dcm", ramp)
    layouts.dicom(
        tmp_path / "ill" / "2.dcm", ramp, PhotometricInterpretation="MONOCHROME1", PatientID="p2"
    )
    layouts.dicom(tmp_path / "ill" / "3.dcm", ramp, WindowCenter=1000, WindowWidth=200)
    records = sound(tmp_path)
    assert [(one.label, one.user) for one in records] == [
        ("healthy", "p1"), ("ill", "p2"), ("ill", "p1"),
    ]  # fmt: skip
    plain, inverse, window = (pixels(one, 32, 1)[0, 0].astype(int) for one in records)
    assert plain[0] == 0 and plain[-1] == 255 and (np.diff(plain) > 0).all()
    assert np.array_equal(inverse, 255 - plain)
    assert (window[:9] == 0).all() and (window[12:] == 255).all() and 0 < window[10] < 255


def test_a_huge_dicom_is_not_unpacked(tmp_path):
    layouts.dicom(tmp_path / "a" / "1.dcm", np.zeros((8, 8), int), Rows=60_000, Columns=60_000)
    with pytest.raises(Exception, match="over 64 million"):
        pixels(sound(tmp_path)[0], 32, 1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_any_picture_format_comes_as_grey_and_as_colour(tmp_path, mode):
    kinds = {
        "1": ("png", "bmp", "tif"), "L": ("png", "jpg", "bmp", "tga", "pgm", "webp"),
        "LA": ("png",), "P": ("gif", "png", "bmp"), "RGB": ("ppm", "jp2", "webp", "pcx", "sgi"),
        "RGBA": ("png", "tif"), "CMYK": ("jpg", "tif"),
    }  # fmt: skip
    for ending in kinds[mode]:
        path = tmp_path / "c" / f"{mode}.{ending}"
        path.parent.mkdir(exist_ok=True)
        Image.new(mode, (24, 24)).save(path)
    records = sound(tmp_path, owner="one")
    assert len(records) == len(kinds[mode])
    for record in records:
        assert pixels(record, 16, 1).shape == (1, 16, 16)
        assert pixels(record, 64, 3).shape == (3, 64, 64)


def test_a_manifest_by_line(tmp_path):
    (tmp_path / "a.png").write_bytes(layouts.png(layouts.pictures(1)[0]))
    (tmp_path / "manifest.csv").write_text(
        "path,label,patient,ward\n"
        "a.png,naevus,ann,3\n"
        "../b.png,naevus,ann,3\n"
        "a.png,naevus,ann\n"
        ",naevus,ann,3\n"
        "a.png,,ann,3\n"
        "a.png,naevus,,3\n"
    )
    first, *others = read(tmp_path)
    assert (first.label, first.user, first.values["ward"]) == ("naevus", "ann", "3")
    assert [(one.where.split(" (")[0], one.why) for one in others] == [
        ("manifest.csv line 3", "a path that leads out of the folder"),
        ("manifest.csv line 4", "another number of values than the table has names"),
        ("manifest.csv line 5", "no file is named"),
        ("manifest.csv line 6", "no value in label"),
        ("manifest.csv line 7", "no value in patient"),
    ]


@pytest.mark.parametrize(
    ("name", "make", "count"),
    [
        ("emnist", lambda p: layouts.emnist(p / "x"), 5),
        ("cifar10", lambda p: layouts.cifar10(p / "x"), 6),
        ("celeba", lambda p: layouts.celeba(p / "x"), 2),
    ],
)
def test_a_layout_is_a_simulations_data_too(tmp_path, name, make, count):
    make(tmp_path)
    data = load(f"{name}:{tmp_path / 'x'},colour=rgb,side=64")
    assert data.shape == (3, 64, 64)
    assert len(data.train_labels) + len(data.test_labels) == count
    assert data.name == name or data.name.startswith(f"{name}:")
    assert not data.train_images.flags.writeable


def test_users_of_a_source_are_a_simulations_users(tmp_path):
    layouts.femnist(tmp_path / "x")
    for i in range(1, 9):  # more users, so that some are for training and some for the test
        data = json.loads((tmp_path / "x" / "all_data_0.json").read_text())
        named = {f"{user}-{i}": held for user, held in data["user_data"].items()}
        (tmp_path / "x" / f"all_data_{i}.json").write_text(json.dumps({**data, "user_data": named}))
    data = load(f"femnist:{tmp_path / 'x'}")
    assert data.shape == (1, 28, 28)
    assert data.classes == 62
    assert data.user_ids is not None and len(data.user_ids) == len(data.train_labels)


def test_a_source_of_another_kind_is_refused_in_one_line(tmp_path):
    with pytest.raises(SourceError, match="is empty; put records into it"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(SourceError, match="name the format with --format"):
            open_source(place)
    with pytest.raises(SourceError, match="does not exist"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        open_source(tmp_path, "cifar1")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.png").write_bytes(layouts.png(layouts.pictures(1)[0]))
    with pytest.raises(SourceError, match=r"which column is the user.*--one-user"):
        read(tmp_path)
    with pytest.raises(SourceError, match=r"no column 'ward'; there are file, label"):
        read(tmp_path, user="ward")


def test_a_data_set_of_the_hub_is_read_where_datasets_keeps_it(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    found, _, _ = layouts.hugging_face(tmp_path / "first", "train")
    kept = tmp_path / "cache"
    kept.mkdir()
    for split in ("train", "test"):
        content = (tmp_path / "first" / "train" / "data-00000-of-00001.arrow").read_bytes()
        (kept / f"digits-{split}.arrow").write_bytes(content)
    asked = []

    def load_dataset(name):
        asked.append(name)
        return {
            split: SimpleNamespace(cache_files=[{"filename": str(kept / f"digits-{split}.arrow")}])
            for split in ("train", "test")
        }

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    data = load("hf:ylecun/digits,side=28,user=writer_id")
    assert asked == ["ylecun/digits"]
    assert (len(data.train_labels), len(data.test_labels)) == (len(found), len(found))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SourceError, match=r"fedlens\[datasets\]"):
        load("hf:ylecun/digits")
