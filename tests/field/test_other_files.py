"""Files as people leave them: each is read for what it is, or named with the way out."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from looking import DRAWN, Case, at_node
from making import CONTRACT, tree
from PIL import Image


@pytest.fixture
def place(tmp_path):
    """A folder with a contract, and an empty ``data``."""
    (tmp_path / "federation.toml").write_text(CONTRACT.format(colour="false"))
    (tmp_path / "data").mkdir()
    return tmp_path


def node(place):
    return at_node(Case("own", "data", "", "", "", "", "", ""), place, place / "store")


def archive(path: Path) -> None:
    labels = ["cat", "dog"] * 3
    pictures = np.stack([DRAWN[label] for label in labels])
    np.savez(path, images=pictures, labels=np.array(labels), users=np.array(list("aabbcc")))


def packed(path: Path, between: str = "/") -> None:
    with zipfile.ZipFile(path, "w") as out:
        for label in ("cat", "dog"):
            for user in range(3):
                file = io.BytesIO()
                Image.fromarray(DRAWN[label]).save(file, "PNG")
                out.writestr(between.join(("set", label, f"u{user}", "0.png")), file.getvalue())
        out.writestr("set/notes/read.txt", "what it is")


@pytest.mark.parametrize("make", [archive, packed, lambda path: packed(path, "\\")])
def test_a_folder_with_one_data_set_and_remarks_is_that_set(place, make):
    make(place / "data" / ("set.npz" if make is archive else "set.zip"))
    (place / "data" / "README.md").write_text("what it is")
    (place / "data" / "LICENSE").write_text("whose it is")
    assert node(place).meets("cat 3, dog 3 of 3") == ""


def test_an_archive_of_a_windows_machine_leads_nowhere_else(place, monkeypatch):
    unpacked = place / "some" / "where" / "deep" / "down"
    unpacked.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(unpacked))
    with zipfile.ZipFile(place / "data" / "set.zip", "w") as out:
        out.writestr("cat\\..\\..\\..\\out.png", b"no")
    assert node(place).meets("refused | outside itself") == ""
    assert not list(place.rglob("out.png"))


def test_what_is_named_like_a_remark_is_a_data_set_all_the_same(place):
    archive(place / "data" / "license-plates.npz")
    assert node(place).meets("cat 3, dog 3 of 3") == ""
    archive(place / "data" / "other.npz")
    assert node(place).meets("refused | has license-plates.npz, other.npz, each a data set") == ""


def test_a_data_set_in_a_folder_of_a_folder_is_reached(place):
    (place / "data" / "outer" / "inner").mkdir(parents=True)
    archive(place / "data" / "outer" / "inner" / "set.npz")
    (place / "data" / "outer" / "README").write_text("what it is")
    assert node(place).meets("cat 3, dog 3 of 3") == ""


def test_the_only_file_of_an_archive_may_have_any_ending(place):
    archive(place / "set.npz")
    with zipfile.ZipFile(place / "data" / "set.zip", "w") as out:
        out.write(place / "set.npz", "license-plates.npz")
    assert node(place).meets("cat 3, dog 3 of 3") == ""
    with zipfile.ZipFile(place / "one.zip", "w") as out:
        out.write(place / "set.npz", "data.bin")
    named = Case("own", "one.zip --format archive", "", "", "", "", "", "")
    assert at_node(named, place, place / "other").meets("cat 3, dog 3 of 3") == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
        (b"\n<!DOCTYPE html><html>404</html>", "a web page"),
        (b"%PDF-1.7", "a PDF, whatever its name says"),
    ],
)
def test_what_lies_in_a_files_place_is_named(place, content, why):
    tree(place / "data")
    (place / "data" / "cat" / "subj-0" / "0.png").write_bytes(content)
    assert node(place).meets(f"cat 5, dog 6 of 3 | left out, {why}") == ""
    (place / "data" / "cat" / "subj-0" / "0.png").unlink()
    (place / "table").mkdir()
    (place / "table" / "train.csv").write_bytes(content)
    found = at_node(Case("own", "table", "", "", "", "", "", ""), place, place / "other")
    assert found.meets(f"refused | train.csv: is {why}") == ""


def test_a_file_that_waits_in_a_cloud_is_missed(place):
    tree(place / "data")
    (place / "data" / "dog" / "subj-1" / ".9.png.icloud").write_bytes(b"bplist00")
    (place / "data" / "dog" / "subj-1" / ".hidden").write_bytes(b"")
    said = "cat 6, dog 6 of 3 | left out, a file that waits in a cloud | subj-1/.9.png.icloud"
    assert node(place).meets(said) == ""


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("images.npy", "labels.npy"), "images.npy: is one array | one .npz"),
        (("all.7z",), "all.7z: is packed; unpack it"),
        (("notes.txt", "all.sqlite"), "all.sqlite: is a database"),
        (("weights.pt",), "is a pickle, which can run code"),
        (("data.mdb", "lock.mdb"), "data.mdb: is not read; export it"),
    ],
)
def test_files_that_are_not_read_are_named_in_a_folder_too(place, names, said):
    for name in names:
        (place / "data" / name).write_bytes(b"\0" * 64)
    assert node(place).meets(f"refused | {said}") == ""


def test_of_several_data_sets_in_a_folder_one_is_asked_for(place):
    archive(place / "data" / "north.npz")
    (place / "data" / "notes.txt").write_text("more of it")
    assert node(place).meets("refused | has north.npz beside other files; name one") == ""
    archive(place / "data" / "south.npz")
    assert node(place).meets("refused | has north.npz, south.npz, each a data set of its own") == ""


def test_tables_say_why_they_have_no_records(place):
    table = place / "data" / "train.csv"
    table.write_bytes(b"")
    assert node(place).meets("refused | is empty; give a line of names") == ""
    table.write_text("file\tlabel\tuser\ndata:image/png;base64,iVBORw0KGgo=\tcat\tu\n")
    assert node(place).meets("refused | 1 left out: a picture written as text") == ""
    names, values = (";".join(one * 784) for one in (["p{}"], ["0,5"]))
    table.write_text(f"label;user;{names.format(*range(784))}\ncat;u;{values}\n")
    assert node(place).meets("refused | fractions with a point (0.5)") == ""
