"""Records as people bring them: tables of every writing, packed sets, other programs' files."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
import zipfile
from dataclasses import replace

import layouts
import numpy as np
import pytest

from fedlens.client.preparing.labels import AgreedNames, parse_map
from fedlens.data.formats.formats import LabelledRecord, open_source
from fedlens.data.formats.records import SourceError, UnusableRecord
from fedlens.data.registry import load
from fedlens.foundation.errors import FedlensError

NAMES = ["Ärger", "cat"]


def read(path, kind="", **asked):
    return list(open_source(path, kind, **{"owner": "each", **asked}).records())


def sound(path, kind="", **asked):
    found = read(path, kind, **asked)
    assert all(isinstance(one, LabelledRecord) for one in found), found
    return found


def labels(path, kind="", **asked):
    return [one.label for one in sound(path, kind, **asked)]


def reasons(path, kind="", **asked):
    return [one.why for one in read(path, kind, **asked) if isinstance(one, UnusableRecord)]


def pictures_in(folder, names):
    """Files of distinct pictures; gives their pixels by name."""
    found = dict(zip(names, layouts.pictures(len(names)), strict=True))
    for name, pixels in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(layouts.png(pixels))
    return found


TEXT = "file,label,user\na.png,Ärger,u1\nb.png,cat,u2\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"]
)
@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_a_table_is_read_in_any_usual_encoding_with_any_separator(tmp_path, encoding, between):
    pictures_in(tmp_path, ["a.png", "b.png"])
    (tmp_path / "m.csv").write_bytes(TEXT.replace(",", between).encode(encoding))
    assert [(one.label, one.user) for one in sound(tmp_path, owner="")] == [
        ("Ärger", "u1"), ("cat", "u2")]  # fmt: skip


@pytest.mark.parametrize("first", ["sep=;\r\n", ""])
def test_excels_line_of_the_separator_is_no_line_of_names(tmp_path, first):
    pictures_in(tmp_path, ["a.png"])
    (tmp_path / "m.csv").write_text(f"{first}file;label;note\r\na.png;cat;1,5 and 2,5, and 3\r\n")
    assert labels(tmp_path) == ["cat"]


def test_columns_without_a_name_do_not_shift_the_others(tmp_path):
    pictures_in(tmp_path, ["a.png", "b.png"])
    (tmp_path / "m.csv").write_text(",file,label,\n0,a.png,cat,\n1,b.png\n2,b.png,dog,,\n")
    first, short, long = read(tmp_path)
    assert (first.label, long.label, short.why[:14]) == ("cat", "dog", "another number")


def workbook(path, sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)


def test_excel(tmp_path):
    pictures_in(tmp_path, ["a.png", "b.png"])
    rows = [["file", "label", "user"], ["a.png", 3.0, 12], [], ["b.png", "cat", None]]
    workbook(tmp_path / "m.xlsx", {"one": rows, "empty": []})
    first, second = read(tmp_path, owner="")
    assert (first.label, first.user) == ("3", "12")
    assert second.why == "no value in user"
    workbook(tmp_path / "m.xlsx", {"one": rows, "legend": [["x"]]})
    with pytest.raises(FedlensError, match=r"one, legend; keep one sheet"):
        read(tmp_path)


def test_files_are_found_as_people_name_them(tmp_path):
    found = pictures_in(tmp_path, ["part_1/x1.png", "part_2/x2.png", "img/y.png", "twice/y.png"])
    rows = ["x1", "x2.png", "img\\y.png", "./img/y.png", "img/y", "y.png", "no.png",
            "C:\\me\\x1.png", "https://a.b/x1.png", "../out.png"]  # fmt: skip
    text = "image_id,label\n" + "".join(f"{name},cat\n" for name in rows)
    (tmp_path / "m.csv").write_text(text)
    read_back = read(tmp_path, image="image_id")
    assert [str(one.picture.relative_to(tmp_path)) for one in read_back[:5]] == [
        "part_1/x1.png", "part_2/x2.png", "img/y.png", "img/y.png", "img/y.png"]  # fmt: skip
    assert [one.why.partition(";")[0] for one in read_back[5:]] == [
        "several files of this name", "no such file", "a path of a Windows machine",
        "an address of another machine", "a path that leads out of the folder"]  # fmt: skip
    assert len(found) == 4


def test_the_only_column_that_names_files_needs_no_name(tmp_path):
    pictures_in(tmp_path, ["img/a.png", "img/b.png"])
    (tmp_path / "m.csv").write_text("Image Index,label\na.png,cat\nb.png,dog\n")
    assert labels(tmp_path) == ["cat", "dog"]


def test_a_table_beside_folders_is_no_manifest_unless_it_names_pictures(tmp_path):
    pictures_in(tmp_path, ["cat/a.png", "dog/b.png"])
    (tmp_path / "notes.csv").write_text("date,remark\n2026-01-01,scanner serviced\n")
    (tmp_path / "metadata.json").write_text('{"scanner": "X"}')
    assert open_source(tmp_path, owner="each").kind == "tree"
    (tmp_path / "notes.csv").write_text("image_id,label\na,dog\n")
    assert open_source(tmp_path, owner="each").kind == "manifest"


def test_tables_of_parts_are_read_together(tmp_path):
    pictures_in(tmp_path, ["a.png", "b.png"])
    for part, file in (("train", "a.png"), ("test", "b.png")):
        (tmp_path / f"{part}.csv").write_text(f"file,label\n{file},cat\n")
    found = sound(tmp_path)
    assert sorted((one.part, one.picture.name) for one in found) == [
        ("test", "b.png"), ("train", "a.png")]  # fmt: skip
    (tmp_path / "more.csv").write_text("file,label\na.png,cat\n")
    with pytest.raises(SourceError, match=r"more.csv, test.csv, train.csv; give one"):
        read(tmp_path, "manifest")


def test_one_hot_columns_are_named_together(tmp_path):
    pictures_in(tmp_path, ["a.png"])
    rows = ["1.0,0.0,m", "0,1,m", "1,1,m", "0,0,m"]
    text = "file,MEL,NV,sex\n" + "".join(f"a.png,{row}\n" for row in rows)
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(SourceError, match=r"--label 'MEL\|NV'"):
        read(tmp_path)
    (tmp_path / "m.csv").write_text(f"{text}a.png,0.5,1,m\n")
    found = read(tmp_path, label="MEL|NV")
    assert [getattr(one, "label", one) for one in found[:3]] == ["MEL", "NV", "MEL|NV"]
    assert reasons(tmp_path, label="MEL|NV") == ["no value in MEL|NV"] * 2


def test_labels_of_several_classes_are_refused_or_left_out_by_a_map(tmp_path):
    agreed = AgreedNames(["cat", "dog"], parse_map(["|=-"]))
    assert [agreed.number(one) for one in ("cat|dog", "cat; Dog", "Cat")] == [None, None, 0]
    with pytest.raises(KeyError):
        AgreedNames(["cat", "dog"]).number("cat|dog")
    pictures_in(tmp_path, [f"{i}.png" for i in range(12)])
    rows = "".join(f"{i}.png;{('cat', 'dog', 'cat, dog')[i % 3]}\n" for i in range(12))
    (tmp_path / "m.csv").write_text(f"file;label\n{rows}")
    with pytest.raises(FedlensError, match=r"'cat, dog' \(4 records\) name several classes"):
        load(f"manifest:{tmp_path},side=16")


def test_one_class_in_several_writings_is_one_class(tmp_path):
    pictures_in(tmp_path, [f"{i}.png" for i in range(20)])
    names = ["Cat", "cat", "cat", "dog"]
    rows = "".join(f"{i}.png,{names[i % 4]}\n" for i in range(20))
    (tmp_path / "m.csv").write_text(f"file,label\n{rows}")
    assert load(f"manifest:{tmp_path}").class_names == ("cat", "dog")
    (tmp_path / "m.csv").write_text(f"file,label\n{rows.replace('dog', 'C').replace('Cat', 'c')}")
    assert load(f"manifest:{tmp_path}").class_names == ("C", "c", "cat")


def test_numbers_with_a_point_are_whole_ones(tmp_path):
    agreed = AgreedNames(["3", "7"])
    assert [agreed.number(one) for one in ("3.0", "7", "7.00")] == [0, 1, 1]
    with pytest.raises(KeyError):
        agreed.number("3.5")
    pictures_in(tmp_path, [f"{i}.png" for i in range(20)])
    rows = "".join(f"{i}.png,{('3.0', '3', '7')[i % 3]}\n" for i in range(20))
    (tmp_path / "m.csv").write_text(f"file,label\n{rows}")
    assert load(f"manifest:{tmp_path}").class_names == ("3", "7")


def test_a_simulation_renames_and_leaves_out_by_map(tmp_path):
    pictures_in(tmp_path, [f"{i}.png" for i in range(24)])
    names = ["a|b", "a", "b", "-1"]
    rows = "".join(f"{i}.png,{names[i % 4]}\n" for i in range(24))
    (tmp_path / "m.csv").write_text(f"file,label\n{rows}")
    found = load(f"manifest:{tmp_path},map=|:-;-1:-;b:beta")
    assert found.class_names == ("a", "beta")
    assert len(found.train_labels) + len(found.test_labels) == 12
    with pytest.raises(FedlensError, match=r"map='a': write map=OWN:CLASS"):
        load(f"manifest:{tmp_path},map=a")


@pytest.mark.parametrize("partly", [False, True])
def test_a_class_called_as_no_label_is_one_by_map(tmp_path, partly):
    names = ["a", "unlabelled", "n/a", "-1"]
    pictures_in(tmp_path, [f"{i}.png" for i in range(40)])
    rows = "".join(f"{i}.png,{names[i % 4]}\n" for i in range(40))
    (tmp_path / "m.csv").write_text(f"file,label\n{rows}")
    mapped = "map=unlabelled:b;n/a:c;-1:b"
    found = load(f"manifest:{tmp_path},{mapped}", partly=partly)
    assert found.class_names == ("a", "b", "c")
    every = [*found.train_labels, *found.test_labels]
    assert np.bincount(every).tolist() == [10, 20, 10]


PIXELS = {
    "pixel": [f"pixel{i}" for i in range(784)],
    "placed": [f"{row}x{column}" for row in range(1, 29) for column in range(1, 29)],
    "numbers": [str(i) for i in range(784)],
    "input": [f"input{i + 1}" for i in range(784)],
}


@pytest.mark.parametrize("names", PIXELS)
def test_pixels_in_a_tables_columns(tmp_path, names):
    found = layouts.pictures(3)
    head = ",".join(["label", *PIXELS[names]])
    rows = "".join(f"{i},{','.join(map(str, one.reshape(-1)))}\n" for i, one in enumerate(found))
    (tmp_path / "train.csv").write_text(f"{head}\n{rows}")
    if names == "input":
        with pytest.raises(SourceError, match="--image input"):
            read(tmp_path)
    records = sound(tmp_path, image="input" if names == "input" else "")
    assert [one.label for one in records] == ["0", "1", "2"]
    assert all(np.array_equal(one.picture, two) for one, two in zip(records, found, strict=True))


def test_pixels_in_one_column(tmp_path):
    found = layouts.pictures(2, 48)
    rows = "".join(
        f"{i},{' '.join(map(str, x.reshape(-1)))},Training\n" for i, x in enumerate(found)
    )
    (tmp_path / "fer2013.csv").write_text(f"emotion,pixels,Usage\n{rows}")
    records = sound(tmp_path, label="emotion")
    assert np.array_equal(records[1].picture, found[1])


@pytest.mark.parametrize(
    ("values", "said"),
    [((0, 16), "from 0 to 16"), ((-0.5, 0.5), "from -0.5 to 0.5"), ((0, 4095), "from 0 to 4095"),
     ((0, 254.5), "from 0 to 254.5")],
)  # fmt: skip
def test_pixels_on_another_scale_are_refused_and_not_guessed(tmp_path, values, said):
    head = ",".join(["label", *(f"pixel{i}" for i in range(64))])
    row = ",".join(["1", *(str(values[i % 2]) for i in range(64))])
    (tmp_path / "t.csv").write_text(f"{head}\n{row}\n")
    with pytest.raises(SourceError, match=f"pixels are numbers {said}; write whole numbers"):
        read(tmp_path)


def test_shares_of_white_become_bytes(tmp_path):
    head = ",".join(["label", *(f"pixel{i}" for i in range(64))])
    rows = "".join(f"1,{','.join([str(white)] * 64)}\n" for white in (0, 0.2, 1))
    (tmp_path / "t.csv").write_text(f"{head}\n{rows}1,{','.join(['x'] * 64)}\n")
    *records, odd = read(tmp_path)
    assert [one.picture.max() for one in records] == [0, 51, 255]
    assert odd.why == "a pixel that is no number"


def test_a_table_without_names_is_said_in_one_short_line(tmp_path):
    for row, said in ((["5", *["0"] * 784], "first line"), (["x.png", "cat"], "not names")):
        (tmp_path / "t.csv").write_text(f"{','.join(row)}\n{','.join(row)}\n")
        with pytest.raises(FedlensError, match=said) as told:
            read(tmp_path)
        assert len(str(told.value)) < 400


def test_arff(tmp_path):
    names = "".join(f"@attribute pixel{i} numeric\n" for i in range(64))
    rows = "".join(f"{','.join(['0', str(top)] * 32)},{name}\n" for top, name in ((255, 3), (8, 7)))
    (tmp_path / "t.arff").write_text(f"@relation t\n{names}@attribute class {{3,7}}\n@data\n{rows}")
    assert labels(tmp_path / "t.arff") == ["3", "7"]
    assert sound(tmp_path / "t.arff")[0].picture.max() == 255
    (tmp_path / "t.arff").write_text("@relation t\n@attribute a string\n@data\nx\n")
    with pytest.raises(FedlensError, match="no readable ARFF file"):
        read(tmp_path / "t.arff")


def coco(folder, file):
    pictures_in(folder, ["images/a.jpg.png", "images/b.png", "images/c.png", "images/d.png"])
    boxes = [(0, 7), (0, 7), (1, 3), (2, 7), (2, 3)]
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps({
        "info": {}, "licenses": [],
        "images": [{"id": i, "file_name": n, "patient": f"p{i}"}
                   for i, n in enumerate(("a.jpg.png", "b.png", "c.png", "d.png"))],
        "annotations": [{"image_id": i, "category_id": c, "bbox": [0, 0, 9, 9]} for i, c in boxes],
        "categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}],
    }))  # fmt: skip


@pytest.mark.parametrize("file", ["annotations/instances_train2017.json", "_annotations.coco.json"])
def test_coco_gives_a_picture_the_class_of_its_boxes(tmp_path, file):
    coco(tmp_path, file)
    found = read(tmp_path, owner="")
    assert [(one.label, one.user) for one in found[:3]] == [
        ("cat", "p0"), ("dog", "p1"), ("cat|dog", "p2")]  # fmt: skip
    assert found[3].why == "no value in label"
    with pytest.raises(SourceError, match=r"has COCO's annotations|detection"):
        read(tmp_path, "tree")


def label_studio(rows):
    return [
        {
            "id": at,
            "data": {"image": image, "patient": f"p{at}"},
            "annotations": [
                {"result": [{"from_name": "c", "type": "choices", "value": {"choices": [one]}}]}
                if one else {"result": []}
                for one in chosen
            ],
        }
        for at, (image, *chosen) in enumerate(rows)
    ]  # fmt: skip


def test_label_studios_exports_are_labelled_pictures(tmp_path):
    pictures_in(tmp_path, ["ab-1.png", "images/2.png"])
    rows = [("/data/upload/1/ab-1.png", "cat", ""), ("/data/local-files/?d=images/2.png", "dog"),
            ("/data/upload/1/ab-1.png", "cat", "dog"), ("s3://b/x.png", "cat"),
            ("/data/upload/1/ab-1.png", "")]  # fmt: skip
    (tmp_path / "project.json").write_text(json.dumps(label_studio(rows)))
    found = read(tmp_path, owner="", user="patient")
    assert [one.label for one in found[:3]] == ["cat", "dog", "cat|dog"]
    assert [one.why[:10] for one in found[3:]] == ["an address", "no value i"]
    minimal = [{"image": image, "choice": chosen[0], "id": 1} for image, *chosen in rows[:2]]
    minimal.append({"image": rows[0][0], "choice": {"choices": ["cat", "dog"]}})
    (tmp_path / "project.json").write_text(json.dumps(minimal))
    assert labels(tmp_path) == ["cat", "dog", "cat|dog"]


def test_json_lines_below_parts(tmp_path):
    for part in ("train", "test"):
        pictures_in(tmp_path / part, ["0.png"])
        line = json.dumps({"file_name": "0.png", "label": "cat", "tags": ["x", 2], "n": None})
        (tmp_path / part / "metadata.jsonl").write_text(f"{line}\n\n")
    found = sound(tmp_path)
    assert sorted(one.part for one in found) == ["test", "train"]
    assert found[0].values["tags"] == "x|2"


def test_a_table_of_boxes_is_refused(tmp_path):
    pictures_in(tmp_path, ["a.png"])
    (tmp_path / "m.csv").write_text("filename,class,xmin,ymin,xmax,ymax\na.png,cat,0,0,1,1\n")
    with pytest.raises(SourceError, match="a row a box"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("files", "said"),
    [(["images/train/0.png", "labels/train/0.txt"], "YOLO"),
     (["train/images/0.png", "train/labels/0.txt"], "YOLO"),
     (["JPEGImages/0.png", "Annotations/0.xml"], "boxes in annotations"),
     (["images/0.png", "masks/0.png"], "pictures and masks")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["", "tree"])
def test_boxes_and_masks_are_no_classes(tmp_path, files, said, kind):
    pictures_in(tmp_path, files)
    with pytest.raises(SourceError, match=said):
        read(tmp_path, kind)


def test_keras_arrays_and_their_parts(tmp_path):
    found = layouts.pictures(6)
    parts = {"x_train": found[:4], "y_train": np.eye(2, dtype=int)[[0, 1, 1, 0]],
             "x_test": found[4:], "y_test": np.eye(2, dtype=int)[[1, 1]]}  # fmt: skip
    np.savez(tmp_path / "m.npz", **parts)
    for asked in ({}, {"image": "x_train", "label": "y_train"}):
        records = sound(tmp_path / "m.npz", **asked)
        assert [(one.label, one.part) for one in records] == [
            *((str(label), "train") for label in (0, 1, 1, 0)),
            ("1", "test"),
            ("1", "test"),
        ]


@pytest.mark.parametrize(
    ("turned", "top"),
    [(lambda x: x / 255, 255), (lambda x: x.astype(np.int64), 255), (lambda x: x / 1.0, 255)],
)
def test_arrays_of_other_numbers_are_brought_to_bytes(tmp_path, turned, top):
    found = layouts.pictures(3)
    np.savez(tmp_path / "m.npz", images=turned(found), labels=np.float32([0, 1, np.nan]))
    first, second, third = read(tmp_path / "m.npz")
    assert [first.label, second.label, third.why] == ["0", "1", "no value in label"]
    assert np.array_equal(first.picture, found[0]) and first.picture.max() <= top
    np.savez(tmp_path / "m.npz", images=found.astype(np.uint16) * 16, labels=[0, 1, 1])
    with pytest.raises(SourceError, match="from 0 to 4080; give bytes"):
        read(tmp_path / "m.npz")


def test_users_of_the_training_part_alone(tmp_path):
    found = layouts.pictures(5)
    np.savez(tmp_path / "m.npz", train_images=found[:3], train_labels=[0, 1, 0], user_ids=[7, 7, 8],
             test_images=found[3:], test_labels=[1, 1])  # fmt: skip
    records = read(tmp_path / "m.npz", owner="")
    assert [one.user for one in records[:3]] == ["7", "7", "8"]
    assert {one.part for one in records[3:]} == {"test"}


def pickled_cifar(folder, protocol=2):
    folder.mkdir(parents=True, exist_ok=True)
    found = layouts.pictures(4, 32, 3)
    rows = np.stack([np.moveaxis(one, 2, 0).reshape(-1) for one in found])
    for name, at in (("data_batch_1", slice(0, 3)), ("test_batch", slice(3, 4))):
        batch = {b"data": rows[at], b"labels": [0, 1, 1, 0][at], b"filenames": [b"x"]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    names = {b"label_names": [b"cat", b"dog"], b"num_vis": 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol))
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifars_python_version(tmp_path, protocol):
    found = pickled_cifar(tmp_path, protocol)
    records = sound(tmp_path)
    assert [(one.label, one.part) for one in records] == [
        ("cat", "train"), ("dog", "train"), ("dog", "train"), ("cat", "test")]  # fmt: skip
    assert all(np.array_equal(one.picture, two) for one, two in zip(records, found, strict=True))


class _Runs:
    """Pickled, it is a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [(os.mkdir,), (eval, "1"), (np.load,), (getattr, "", "join"), (np.frombuffer, b"")],
    ids=["mkdir", "eval", "load", "getattr", "numpy"],
)
@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_pickle_calls_nothing(tmp_path, call):
    function, *arguments = call
    made = tmp_path / "made"
    pickled_cifar(tmp_path)
    one = _Runs(function, *(arguments or [str(made)]))
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": one, b"labels": [0]}, 2))
    with pytest.raises(SourceError, match=r"data_batch_1: is no batch .* which is not called"):
        read(tmp_path)
    assert not made.exists()


def test_cifar_100s_python_version(tmp_path):
    found = layouts.pickled_cifar(tmp_path)
    records = sound(tmp_path, label="fine")
    assert [(one.label, one.values["coarse"]) for one in records] == [
        ("a", "fish"), ("c", "tree"), ("b", "fish")]  # fmt: skip
    assert np.array_equal(records[2].picture, found[2])


def test_hdf5_of_tensorflow_federated_and_by_rows(tmp_path):
    h5py = pytest.importorskip("h5py")
    found = layouts.hdf5(tmp_path)
    records = sound(tmp_path, owner="")
    assert [(one.user, one.label, one.part) for one in records] == [
        ("f1", "0", "train"),
        ("f1", "1", "train"),
        ("f1", "2", "train"),
        ("f2", "3", "train"),
    ]
    assert all(np.array_equal(one.picture, two) for one, two in zip(records, found, strict=True))
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["images"], file["labels"] = layouts.pictures(2, 32, 3), [[b"cat"], [b"dog"]]
    assert labels(tmp_path / "rows.h5") == ["cat", "dog"]


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_hdf5_reads_no_other_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "out.h5", "w") as file:
        file["images"] = layouts.pictures(2)
    (tmp_path / "raw").write_bytes(layouts.pictures(2).tobytes())
    path = tmp_path / "in" / "x.h5"
    for link in ("link", "external", "virtual"):
        with h5py.File(path, "w") as file:
            file["labels"] = [0, 1]
            if link == "link":
                file["images"] = h5py.ExternalLink(str(tmp_path / "out.h5"), "images")
            elif link == "external":
                file.create_dataset("images", (2, 28, 28), "u1",
                                    external=[(str(tmp_path / "raw"), 0, 1568)])  # fmt: skip
            else:
                layout = h5py.VirtualLayout((2, 28, 28), "u1")
                layout[:] = h5py.VirtualSource(str(tmp_path / "out.h5"), "images", (2, 28, 28))
                file.create_virtual_dataset("images", layout)
        with pytest.raises(SourceError, match="which data set has the pictures"):
            read(path)


def packed(path, files):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in files.items():
            head = tarfile.TarInfo(name)
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))


TREE = {f"{label}/{user}/{i}.png": label for label in ("cat", "dog") for user in ("u", "v")
        for i in range(2)}  # fmt: skip


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz"])
def test_an_archive_is_read_as_its_content_is(tmp_path, name):
    picture = layouts.png(layouts.pictures(1)[0])
    packed(tmp_path / name, dict.fromkeys(TREE, picture))
    source = open_source(tmp_path / name)
    for found in source.records():  # a file is there as long as its record is looked at
        assert found.picture.read_bytes() == picture
    assert sorted((one.label, one.user) for one in sound(tmp_path / name, owner="")) == sorted(
        (label, name.split("/")[1]) for name, label in TREE.items())  # fmt: skip
    table = "file,class,patient\na.png,cat,p\n"
    packed(tmp_path / name, {"m.csv": table.encode(), "a.png": picture})
    assert [(one.label, one.user) for one in sound(tmp_path / name, owner="")] == [("cat", "p")]


def test_what_is_unpacked_goes_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    packed(tmp_path / "x.zip", dict.fromkeys(TREE, layouts.png(layouts.pictures(1)[0])))
    records = open_source(tmp_path / "x.zip").records()
    next(records)
    (unpacked,) = (tmp_path / "t").iterdir()
    assert unpacked.stat().st_mode & 0o077 == 0
    records.close()
    assert not list((tmp_path / "t").iterdir())


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("name", ["../out.png", "/tmp/out.png", "a/../../out.png", "c:\\out.png"])
@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_an_archive_writes_nowhere_else(tmp_path, ending, name):
    path = tmp_path / f"x.{ending}"
    packed(path, {"cat/a.png": layouts.png(layouts.pictures(1)[0]), name: b"x"})
    with pytest.raises(SourceError, match="outside itself"):
        read(path)


def test_archives_unpack_within_limits_and_follow_no_link(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/a.png", bytes(90 * 2**20))
    with pytest.raises(SourceError, match="400 times its size"):
        read(tmp_path / "x.zip")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        content = layouts.png(layouts.pictures(1)[0])
        head = tarfile.TarInfo("cat/a.png")
        head.size = len(content)
        tar.addfile(head, io.BytesIO(content))
        for kind, name in ((tarfile.SYMTYPE, "cat/b.png"), (tarfile.LNKTYPE, "dog/c.png")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "/etc/passwd"
            tar.addfile(link)
    *links, only = read(tmp_path / "x.tar")
    assert only.label == "cat" and {one.why for one in links} == {
        "a link in an archive, which is not followed"}  # fmt: skip


def test_keys_with_dots_are_records_of_their_own(tmp_path):
    picture = layouts.png(layouts.pictures(1)[0])
    members = [
        (f"scan.2024.{i}.{end}", content)
        for i in range(3)
        for end, content in (("png", picture), ("json", b'{"label": "cat", "user": "u"}'))
    ]
    layouts.webdataset(tmp_path / "shard-000.tar", members)
    assert [one.values["key"] for one in sound(tmp_path)] == [f"scan.2024.{i}" for i in range(3)]
    members = [("0.png", picture), ("0.seg.png", picture), ("0.cls", b"cat")]
    layouts.webdataset(tmp_path / "shard-000.tar", members)
    passed, found = read(tmp_path)
    assert passed.quiet and found.label == "cat"


@pytest.mark.parametrize(
    ("name", "said"),
    [("x.npy", "numpy.savez"), ("x.xls", "save it as .xlsx"), ("x.rar", "unpack it"),
     ("x.pkl", "can run code"), ("x.tfrecord", "export it")],
)  # fmt: skip
def test_what_is_not_read_is_said_with_a_way_on(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"x" * 100)
    with pytest.raises(SourceError, match=said):
        read(tmp_path / name)


def test_a_published_archive_is_read_as_it_was_fetched(tmp_path):
    layouts.pickled_cifar(tmp_path / "cifar-100-python")
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-100-python", "cifar-100-python")
    (tmp_path / "one").mkdir()
    (tmp_path / "cifar-100-python").rename(tmp_path / "one" / "cifar-100-python")
    for path in (tmp_path / "cifar-100-python.tar.gz", tmp_path / "one"):
        assert [one.label for one in sound(path)] == ["fish", "tree", "fish"]


def test_an_archive_in_an_archive_is_refused(tmp_path):
    packed(tmp_path / "a.zip", {"cat/a.png": b"x"})
    packed(tmp_path / "b.zip", {"a.zip": (tmp_path / "a.zip").read_bytes()})
    with pytest.raises(SourceError, match="an archive in an archive"):
        read(tmp_path / "b.zip")


def test_faults_in_an_archive_are_named_by_it_and_not_by_where_it_was_unpacked(tmp_path):
    packed(tmp_path / "a.zip", {"m.csv": b"file,file\n1,2\n"})
    with pytest.raises(SourceError, match=f"{tmp_path}/a.zip/m.csv|{tmp_path}/a.zip") as told:
        read(tmp_path / "a.zip")
    assert "unpacked-" not in str(told.value)


def test_kaggles_ids_are_files_of_the_tables_own_folder(tmp_path):
    for part in ("train", "test"):
        pictures_in(tmp_path, [f"{part}/{i}.png" for i in range(3)])
    (tmp_path / "train.csv").write_text("id,label\n" + "".join(f"{i},cat\n" for i in range(3)))
    (tmp_path / "test.csv").write_text("id\n0\n1\n2\n")
    (tmp_path / "sample_submission.csv").write_text("id,label\n0,cat\n")
    found = read(tmp_path)
    assert {one.picture.parent.name for one in found if one.part == "train"} == {"train"}
    assert {one.why for one in found if one.part == "test"} == {"no value in label"}


def test_labels_by_file_in_one_object(tmp_path):
    pictures_in(tmp_path, ["img/a.png", "img/b.png"])
    (tmp_path / "labels.json").write_text(json.dumps({"a.png": "cat", "b.png": 3}))
    assert labels(tmp_path) == ["cat", "3"]


def test_arrays_that_do_not_fit_each_other_are_said(tmp_path):
    path, found = tmp_path / "m.npz", layouts.pictures(6)
    np.savez(path, images=found, labels=np.arange(5))
    with pytest.raises(SourceError, match=r"labels has shape \(5,\) for 6 pictures"):
        read(path)
    np.savez(path, images=np.full((6, 28, 28), np.nan), labels=np.arange(6))
    with pytest.raises(SourceError, match="values that are no numbers"):
        read(path)
    np.savez(path, images=found // 128, labels=np.arange(6))  # 0 and 1: shares, not near black
    assert sound(path)[0].picture.max() == 255
    np.savez(path, x_train=found.reshape(6, -1), y_train=np.arange(6))
    assert np.array_equal(sound(path)[5].picture, found[5])
    np.savez(path, train_images=found, train_labels=np.arange(6),
             test_images=found / 255, test_labels=np.arange(6))  # fmt: skip
    assert np.array_equal(sound(path)[11].picture, found[5])


def test_western_text_and_whole_pictures_of_coco_are_told(tmp_path):
    told = []
    pictures_in(tmp_path, ["a.png"])
    (tmp_path / "m.csv").write_bytes("file,label\na.png,Ärger\n".encode("cp1252"))
    source = open_source(tmp_path, owner="each")
    list(replace(source, columns=replace(source.columns, told=told.append)).records())
    coco(tmp_path / "c", "_annotations.coco.json")
    source = open_source(tmp_path / "c", owner="each")
    list(replace(source, columns=replace(source.columns, told=told.append)).records())
    assert [("Windows-1252" in one, "taken whole" in one) for one in told] == [
        (True, False), (False, True)]  # fmt: skip


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_small_table_that_stands_for_much_ends_in_one_line(tmp_path):
    sheet = "<sheetData>" + "<row><c t='inlineStr'><is><t>x</t></is></c></row>" * 2_000_000
    workbook(tmp_path / "m.xlsx", {"one": [["file", "label"]]})
    with zipfile.ZipFile(tmp_path / "m.xlsx") as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    table = next(name for name in members if "worksheets" in name)
    members[table] = members[table].replace(b"<sheetData>", sheet.encode())
    with zipfile.ZipFile(tmp_path / "big.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    (tmp_path / "deep.json").write_text("[" * 100_000 + '{"images"')
    for name in ("big.xlsx", "deep.json"):
        with pytest.raises(FedlensError) as told:
            read(tmp_path / name, "manifest")
        assert len(str(told.value)) < 500
