"""Inputs that no archive of small files holds: links, long names, huge pictures, others' files."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
from looking import DRAWN, HERE
from PIL import Image

CONTRACT = 'name = "field"\nclasses = ["cat", "dog"]\n\n[image]\nside = 28\ncolour = {colour}\n'
PUBLISHED = {
    "dcm_ybr": (
        "SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm", "SC_ybr_full_422_uncompressed.dcm",
        "examples_jpeg2k.dcm",
    ),
    "dcm_packed": (
        "CT_small.dcm", "JPGExtended.dcm", "MR_small_jpeg_ls_lossless.dcm", "MR_truncated.dcm",
        "SC_rgb_jpeg_gdcm.dcm", "SC_rgb_rle_2frame.dcm",
    ),
}  # fmt: skip
"""Files that pydicom itself carries, by case."""


def make_cases(folder: Path) -> None:
    """Put every case into a folder of its name."""
    with tarfile.open(HERE / "cases.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for name, files in PUBLISHED.items():
        (folder / name / "data").mkdir()
        tests = Path(pydicom.__file__).parent / "data" / "test_files"
        for file in files:
            shutil.copy(tests / file, folder / name / "data" / file)
    (folder / "empty_folder" / "data").mkdir()
    for name, make in MADE.items():
        place = folder / name
        place.mkdir()
        (place / "federation.toml").write_text(CONTRACT.format(colour="false"))
        make(place)


def draw(path: Path, label: str) -> Path:
    """A picture of a class, by the ending of its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(DRAWN[label]).save(path)
    return path


def tree(root: Path, users: int = 3, each: int = 2, between: str = "") -> None:
    """``CLASS/USER/*.png`` of several users, folders ``between`` below a user."""
    for label in ("cat", "dog"):
        for user in range(users):
            for place in range(each):
                draw(root / label / f"subj-{user}" / between / f"{place}.png", label)


def _symlinks(place: Path) -> None:
    tree(place / "data")
    outside = draw(place / "elsewhere" / "x.png", "cat")
    own = place / "data" / "cat" / "subj-0"
    (own / "within.png").symlink_to(own / "0.png")
    (own / "gone.png").symlink_to(own / "nothing.png")
    (place / "data" / "cat" / "subj-1" / "out.png").symlink_to(outside)


def _symlink_class_folder(place: Path) -> None:
    tree(place / "data")
    shutil.move(place / "data" / "dog", place / "dogs")
    (place / "data" / "dog").symlink_to(place / "dogs")


def _long_names(place: Path) -> None:
    for label in ("cat", "dog"):
        for user in range(3):
            name = f"{user}" + "u" * 254
            draw(place / "data" / label / name / "a" / "b" / ("p" * 251 + ".png"), label)


def _huge(place: Path) -> None:
    tree(place / "data", users=2)
    large = Image.fromarray(DRAWN["cat"]).resize((12_000, 9000))
    (place / "data" / "cat" / "subj-3").mkdir()
    large.save(place / "data" / "cat" / "subj-3" / "wsi.png", compress_level=1)


def _annex(place: Path) -> None:
    tree(place / "data", users=1)
    for number, file in enumerate(sorted((place / "data").rglob("*.png"))):
        kept = place / ".git" / "annex" / f"key-{number}.png"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, kept)
        file.symlink_to(kept)


def _coco_json(place: Path) -> None:
    told = {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(4)],
        "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
        "annotations": [{"id": k, "image_id": k, "category_id": k % 2} for k in range(4)],
    }
    for k in range(4):
        draw(place / "data" / f"{k}.jpg", ("cat", "dog")[k % 2])
    (place / "data" / "_annotations.coco.json").write_text(json.dumps(told))


def _medmnist(place: Path, channels: int, labels: tuple[str, str]) -> None:
    arrays = {}
    for part, count in (("train", 24), ("val", 8), ("test", 8)):
        numbers = np.arange(count) % 2
        drawn = [Image.fromarray(DRAWN[("cat", "dog")[one]]).resize((28, 28)) for one in numbers]
        pixels = np.stack([np.asarray(one) for one in drawn])
        arrays[f"{part}_images"] = pixels if channels == 1 else np.stack([pixels] * 3, -1)
        arrays[f"{part}_labels"] = numbers[:, None].astype(np.uint8)
    np.savez_compressed(place / "data.npz", **arrays)
    colour = str(channels == 3).lower()
    text = CONTRACT.format(colour=colour).replace('"cat", "dog"', '"{}", "{}"'.format(*labels))
    (place / "federation.toml").write_text(text)


def _unreadable(place: Path) -> None:
    tree(place / "data")
    (place / "data" / "cat" / "subj-0" / "0.png").chmod(0)


MADE: dict[str, Callable[[Path], None]] = {
    "symlinks": _symlinks,
    "symlink_class_folder": _symlink_class_folder,
    "long_names": _long_names,
    "too_deep": lambda place: tree(place / "data", 1, between="/".join("abcdefghij")),
    "huge": _huge,
    "fc23_annex": _annex,
    "real_coco_json": _coco_json,
    "medmnist_retina": lambda place: _medmnist(place, 3, ("0", "1")),
    "real_pneumoniamnist": lambda place: _medmnist(place, 1, ("normal", "pneumonia")),
    "unreadable_file": _unreadable,
}
