"""Data of boxes and masks, which is taken for no classes: said what it is, and how to go on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedlens.data.formats.records import SourceError, alike, known_part

PICTURES = {"images", "image", "imgs", "img", "jpegimages"}
BOXES = {"labels", "annotations"}
MASKS = {"masks", "mask", "segmentation", "segmentationclass", "segmentationobject", "gt"}
CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"))
LOOKED_AT = 200
ADVICE = (
    "a record here is a picture of one class: give CLASS/*.png, or a table with a row a picture "
    "(COCO's JSON counts too: a picture's class is that of its boxes)"
)


def check_no_detection(path: Path) -> None:
    """Refuse a folder of YOLO's, Pascal VOC's, COCO's or of masks to be read as folders of classes.

    Raises:
        SourceError: it is one.
    """
    if not path.is_dir():
        return
    places = [path, *(one for one in _some(path) if one.is_dir() and known_part(one.name))]
    for place in places:
        if what := _what(place):
            raise SourceError(f"{path}: {what}; {ADVICE}")


def is_of_boxes(names: Iterable[str]) -> bool:
    """Whether a table has a row a box, by its columns."""
    there = {alike(name) for name in names}
    return any(there >= set(corners) for corners in CORNERS)


def _what(place: Path) -> str:
    """What a folder holds, in words; empty where it may be folders of classes."""
    folders = {one.name.casefold(): one for one in _some(place) if one.is_dir()}
    files = [one.name.casefold() for one in _some(place) if not one.is_dir()]
    if any(name.endswith(".coco.json") for name in files):
        return "has COCO's annotations beside its pictures"
    pictures = folders.keys() & PICTURES
    if pictures and (held := [folders[one] for one in folders.keys() & BOXES]):
        endings = {one.suffix.lower() for one in _below(held[0])}
        if ".txt" in endings:
            return "is a data set for detection (YOLO: boxes in text files)"
        if endings & {".xml", ".json"}:
            return "is a data set for detection (boxes in annotations)"
    if pictures and folders.keys() & MASKS:
        return "is a data set for segmentation (pictures and masks)"
    coco = folders.get("annotations")
    if coco is not None and any(one.suffix.lower() == ".json" for one in _some(coco)):
        return "has COCO's annotations beside its pictures"
    return ""


def _below(folder: Path) -> list[Path]:
    here = _some(folder)
    return [*here, *(two for one in here if one.is_dir() for two in _some(one))]


def _some(folder: Path) -> list[Path]:
    """The first names in a folder."""
    found = []
    try:
        for one in folder.iterdir():
            found.append(one)
            if len(found) == LOOKED_AT:
                break
    except OSError:
        return []
    return found
