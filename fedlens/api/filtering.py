"""A filter over people's own records: folders of pictures, archives, series and streams.

Only what the filter releases is written: no label, no owner, no note that a camera left in a
picture. Pictures keep their path below the folder, and long series their name. Noise is the
operating system's, fresh for each release, or follows from a device's key.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.api.filter_noise import AT_ONCE, Releaser
from fedlens.api.release_budget import MOST_RECORDS
from fedlens.data.attributes.options import Options
from fedlens.data.labelled.arrays import (
    is_series,
    names_of,
    pictures_of,
    read_arrays,
    resized_pictures,
)
from fedlens.data.labelled.labels import left_out
from fedlens.data.labelled.pictures import SUFFIXES as PICTURES
from fedlens.data.labelled.pictures import (
    UnreadablePictureError,
    looked_at,
    read_square,
    resizing_note,
)
from fedlens.data.labelled.series import DEFAULTS, read_series, step_columns
from fedlens.data.labelled.tables import SUFFIXES as TABLES
from fedlens.data.labelled.tables import TextTable, read_table
from fedlens.data.mapped_arrays import unread
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.files import make_folder_durably, write_durably
from fedlens.privatizers.private_data import PrivateDataError

STREAM = "-"
MOST_STREAM = 2**32
JPEG_QUALITY = 95


@dataclass
class Applied:
    """What was released.

    Attributes:
        records: how many.
        notes: what was left out or changed, a line each.
        nats: that all releases with the key tell at most; None where nothing is counted.
        budget: for these nats.
        shared: near records share their noise.
    """

    records: int = 0
    nats: float | None = None
    budget: float | None = None
    shared: bool = False
    notes: list[str] = field(default_factory=list)


def apply_filter(releaser: Releaser, source: str, target: str, records: str = "") -> Applied:
    """Write what the filter releases of ``source`` to ``target``.

    Args:
        releaser: the filter.
        source: a folder of pictures, a file ``.npz``, ``.npy``, ``.csv`` or ``.parquet``, or ``-``
            for an npy or npz stream on standard input.
        target: a new folder for a folder, else a file of the source's kind (``.csv`` for a table),
            or ``-`` for standard output.
        records: the array of an npz; may be left out where there is one only, or ``images``.

    Raises:
        WrongUse: source and target do not go together, or the target is there already.
        PrivateDataError: the source cannot be read, or has nothing for this filter.
    """
    if source == STREAM:
        return _stream(releaser, _all_of_input(), "standard input", target, records)
    place = Path(source)
    if not place.exists():
        raise WrongUse(f"IN {source}: there is no such file or folder")
    if place.is_dir():
        return _folder(releaser, place, target)
    if place.suffix.lower() in TABLES:
        return _table(releaser, place, target)
    if place.suffix.lower() in (".npz", ".npy"):
        return _stream(releaser, place, source, target, records)
    raise WrongUse(
        f"IN {source}: give a folder of pictures, a file .npz, .npy, .csv or .parquet, or - for a "
        "stream"
    )


def _folder(releaser: Releaser, source: Path, target: str) -> Applied:
    out = _new_folder(source, target)
    side, channels = releaser.side(), releaser.shape[0]
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in PICTURES)
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    if not files:
        raise PrivateDataError(
            f"IN {source}: has no PNG, JPEG or PPM pictures (links do not count); add some"
        )
    done, bad, sizes = Applied(), [], set()
    spent: list[str] = []
    links = [str(path.relative_to(source)) for path in found if path.is_symlink()]
    left_out(done.notes, links, "as links")
    for start in range(0, len(files), AT_ONCE):
        read: list[tuple[Path, NDArray[np.uint8]]] = []
        for path in files[start : start + AT_ONCE]:
            try:
                size = looked_at(path)[1]
                read.append((path, read_square(path, side, channels)))
                sizes.add(size)
            except UnreadablePictureError:
                bad.append(str(path.relative_to(source)))
        done.records += _write_released(releaser, read, source, out, spent)
    left_out(done.notes, bad, "as no readable picture")
    most = f"(or {MOST_RECORDS:,} records of this filter are counted, which is all that can be)"
    left_out(done.notes, spent, f"for the budget is spent {most}")
    if not done.records and not spent:
        raise PrivateDataError(f"IN {source}: no picture can be read, such as {bad[0]}")
    done.notes.extend(resizing_note(sizes, side))
    return done


def _write_released(
    releaser: Releaser,
    read: list[tuple[Path, NDArray[np.uint8]]],
    source: Path,
    out: Path,
    spent: list[str],
) -> int:
    """Write what is released of pictures; how many; names that the budget keeps go to ``spent``."""
    if not read:
        return 0
    pixels = np.stack([one for _, one in read])
    let_go = releaser.admit_pixels(pixels, whole=False)
    names = [path.relative_to(source) for path, _ in read]
    spent.extend(str(name) for name, let in zip(names, let_go, strict=True) if not let)
    if let_go.any():
        going = [name for name, let in zip(names, let_go, strict=True) if let]
        for name, one in zip(going, releaser.release_pixels(pixels[let_go]), strict=True):
            _write_picture(out / name, one)
    return int(let_go.sum())


def _new_folder(source: Path, target: str) -> Path:
    if target == STREAM:
        raise WrongUse("OUT -: pictures go into a folder; name one, or give IN as .npz")
    out, here = Path(target).resolve(), source.resolve()
    if out == here or out.is_relative_to(here) or here.is_relative_to(out):
        raise WrongUse(f"OUT {target}: lies in IN or around it; name a folder beside it")
    try:
        out.mkdir(parents=True, exist_ok=True)
        full = any(out.iterdir())
    except OSError as error:
        raise WrongUse(f"OUT {target}: cannot be written to: {error.strerror}") from None
    if full:
        raise WrongUse(f"OUT {target}: is not empty; name a new folder")
    return out


def _write_picture(path: Path, pixels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, 2))
    if path.suffix.lower() in (".jpg", ".jpeg"):
        picture.save(path, quality=JPEG_QUALITY)
    else:
        picture.save(path)


def _table(releaser: Releaser, source: Path, target: str) -> Applied:
    if not releaser.of_series:
        raise WrongUse(
            f"IN {source}: is a table of series; the filter takes pictures {releaser.shape}: give "
            "their folder, an .npz or an .npy"
        )
    write = _checked(target, (".csv",))
    table, done = read_table(source), Applied()
    options = Options("series", source, DEFAULTS)
    found, steps = read_series(options, table, labelled=False), releaser.shape[0]
    if found.long:
        lines = _long_lines(releaser, table, options, steps, done)
    else:
        columns = step_columns(table)
        if len(columns) != steps:
            raise PrivateDataError(
                f"IN {source}: has {len(columns)} columns of steps, the filter takes {steps}"
            )
        values = np.stack(found.values)
        whole = np.flatnonzero(np.isfinite(values).all(1))
        rest = sorted(set(range(len(values))) - set(whole.tolist()))
        left_out(done.notes, [f"row {row + 1}" for row in rest], "for want of a number")
        _some(len(whole), source)
        released = releaser.release_series(values[whole])
        done.records = len(whole)
        lines = [
            ["row", *columns],
            *([row + 1, *one] for row, one in zip(whole, released, strict=True)),
        ]
    write(_as_csv(lines))
    return done


def _long_lines(
    releaser: Releaser, table: TextTable, options: Options, steps: int, done: Applied
) -> list[list[Any]]:
    """Lines of series, step and released value; pieces of as many steps as the filter takes."""
    found = read_series(options, table, labelled=False)
    pieces: list[NDArray[np.float64]] = []
    names: list[tuple[str, int]] = []
    rest: list[str] = []
    for name, values in zip(found.names, found.values, strict=True):
        starts = range(0, len(values) - steps + 1, steps)
        whole = [at for at in starts if np.isfinite(values[at : at + steps]).all()]
        pieces.extend(values[at : at + steps] for at in whole)
        names.extend((name, at) for at in whole)
        if steps * len(whole) < len(values):
            rest.append(name)
    left_out(done.notes, rest, f"in part, what fills no {steps} steps or lacks a number")
    _some(len(pieces), table.path)
    released = releaser.release_series(np.stack(pieces))
    done.records = len(pieces)
    head: list[Any] = [options.values[key] for key in ("series", "step", "value")]
    return [head] + [
        [name, at + step, value]
        for (name, at), one in zip(names, released, strict=True)
        for step, value in enumerate(one)
    ]


def _some(count: int, source: Path) -> None:
    if not count:
        raise PrivateDataError(f"IN {source}: no series has a number at each step; fix it")


def _as_csv(lines: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _all_of_input() -> io.BytesIO:
    content = sys.stdin.buffer.read(MOST_STREAM + 1)
    if len(content) > MOST_STREAM:
        raise PrivateDataError("IN -: is over 4 GiB; send it in parts")
    return io.BytesIO(content)


def _stream(
    releaser: Releaser, source: Path | io.BytesIO, name: str, target: str, records: str
) -> Applied:
    """An npy array, or the records of an npz archive."""
    with _opened(source) as file:
        packed = file.read(2) == b"PK"
        write = _checked(target, (".npz",) if packed else (".npy",))
        file.seek(0)
        key, array = _member(file, name, records) if packed else ("", _array(file, name))
    done = Applied()
    released = _released_array(releaser, array, Path(name), key or "the array", done)
    content = io.BytesIO()
    if packed:
        with zipfile.ZipFile(content, "w") as archive, archive.open(f"{key}.npy", "w") as member:
            np.save(member, released)
    else:
        np.save(content, released)
    write(content.getvalue())
    return done


def _array(file: IO[bytes], name: str) -> NDArray[Any]:
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise PrivateDataError(
            f"IN {name}: no readable npy array of plain numbers ({unread(error)}); write it "
            "with numpy.save"
        ) from error
    if not isinstance(found, np.ndarray) or not found.ndim:
        raise PrivateDataError(f"IN {name}: holds no array of records; write one with numpy.save")
    return found


def _opened(source: Path | io.BytesIO) -> IO[bytes]:
    return source if isinstance(source, io.BytesIO) else source.open("rb")


def _member(file: IO[bytes], name: str, records: str) -> tuple[str, NDArray[Any]]:
    there = names_of(file, Path(name))
    key = records or (there[0] if len(there) == 1 else "images")
    if key not in there:
        raise PrivateDataError(
            f"IN {name}: which array are the records? name it with --records: {', '.join(there)}"
        )
    return key, read_arrays(file, Path(name), [key])[key]


def _released_array(
    releaser: Releaser, array: NDArray[Any], place: Path, key: str, done: Applied
) -> NDArray[Any]:
    if not len(array):
        raise PrivateDataError(f"IN {place}: {key} has no records; give at least one")
    done.records = len(array)
    if releaser.of_series:
        fits = is_series(array) and array[0].size == releaser.shape[0]
        if not fits or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise PrivateDataError(
                f"IN {place}: {key} has type {array.dtype} and shape {array.shape}; the filter "
                f"takes finite numbers [n, {releaser.shape[0]}]"
            )
        released = releaser.release_series(array.reshape(len(array), -1).astype(np.float64))
        return released.reshape(array.shape)
    pixels, side = pictures_of(place, key, array), releaser.side()
    if pixels.shape[1] != releaser.shape[0]:
        raise PrivateDataError(
            f"IN {place}: {key} has {pixels.shape[1]} channels, the filter takes "
            f"{releaser.shape[0]}; convert them"
        )
    done.notes.extend(resizing_note({(pixels.shape[3], pixels.shape[2])}, side))
    given = resized_pictures(pixels, side)
    releaser.admit_pixels(given, whole=True)
    released_pixels = releaser.release_pixels(given)
    return released_pixels[:, 0] if array.ndim == 3 else released_pixels


def _checked(target: str, suffixes: Sequence[str]) -> Callable[[bytes], None]:
    """What writes to the target, which is looked at now: standard output, or a new file."""
    if target == STREAM:
        return _to_output
    out = Path(target)
    if out.suffix.lower() not in suffixes:
        raise WrongUse(f"OUT {target}: what is written is {suffixes[0]}; let the name end so")
    if out.exists():
        raise WrongUse(f"OUT {target}: is there already; name a new file")
    try:
        make_folder_durably(out.parent)
    except OSError as error:
        raise WrongUse(f"OUT {target}: cannot be written: {error.strerror}") from None
    return lambda content: write_durably(out, content)


def _to_output(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
