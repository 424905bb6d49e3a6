"""Checked downloads into the user's cache: a file is kept only when its digest is the known one."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tempfile
import urllib.request
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedlens.data.dataset import DatasetError

DATA_VARIABLE = "FEDLENS_DATA"
TIMEOUT_SECONDS = 30.0
LARGEST_BYTES = 64 << 20
LARGEST_UNPACKED = 1 << 30
"""More than any known file; a mirror that sends more is not believed."""


def cache_folder(name: str) -> Path:
    """Where downloads of data set ``name`` are kept."""
    return Path.home() / ".cache" / "fedlens" / name


def search_folders(
    name: str, data_dir: Path | None, system_folders: Iterable[Path] = ()
) -> list[Path]:
    """Where files of ``name`` are looked for: in ``data_dir`` alone when it is given.

    Else in the folder that FEDLENS_DATA names, in the system's folders, and in the cache. In each
    folder a sub-folder ``name`` goes first.
    """
    if data_dir is not None:
        return [data_dir / name, data_dir]
    named = os.environ.get(DATA_VARIABLE)
    own = [Path(named) / name, Path(named)] if named else []
    return [*own, *system_folders, cache_folder(name)]


def download(
    name: str,
    mirrors: Sequence[str],
    files: Sequence[str],
    digests: Sequence[str],
    tried: Sequence[Path],
) -> list[Path]:
    """Fetch gzipped files into the cache, each from the first mirror that has the right one.

    Args:
        name: data set, names the folder in the cache.
        mirrors: addresses of folders.
        files: names in that folder.
        digests: SHA-256 (hex) of each file, unpacked.
        tried: folders looked into before, named in the error.

    Returns:
        The paths, in the order of ``files``.

    Raises:
        DatasetError: when a file can be had from no mirror (as without a network).
    """
    folder = cache_folder(name)
    contents: list[bytes] = []
    for file, digest in zip(files, digests, strict=True):
        try:
            contents.append(_first_good(mirrors, file, digest))
        except DatasetError as error:
            places = ", ".join(str(place) for place in tried)
            raise DatasetError(
                f"{name} is in none of {places}, and cannot be downloaded: {error}. Put "
                f"{', '.join(files)} into {folder}, or say where they are with --data-dir or "
                "FEDLENS_DATA; the data set 'embedded' needs no files"
            ) from error
    paths = [folder / file for file in files]
    for path, content in zip(paths, contents, strict=True):
        _write_whole(path, content)
    return paths


def _first_good(mirrors: Sequence[str], file: str, digest: str) -> bytes:
    troubles: list[str] = []
    for mirror in mirrors:
        address = f"{mirror}/{file}"
        try:
            content = _get(address)
            unpacked = _unpacked(content)
        except (OSError, EOFError, zlib.error) as error:
            troubles.append(f"{address}: {error}")
            continue
        if hashlib.sha256(unpacked).hexdigest() == digest:
            return content
        troubles.append(f"{address}: not the known file (its SHA-256 differs)")
    raise DatasetError("; ".join(troubles))


def _unpacked(content: bytes) -> bytes:
    """What a gzipped file holds; a mirror may send one that unpacks to any size.

    Raises:
        OSError, EOFError, zlib.error: it is damaged, or unpacks to more than any of the sets does.
    """
    with gzip.open(io.BytesIO(content)) as stream:
        unpacked = stream.read(LARGEST_UNPACKED + 1)
    if len(unpacked) > LARGEST_UNPACKED:
        raise OSError(f"it unpacks to over {LARGEST_UNPACKED} bytes")
    return unpacked


def _get(address: str) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise DatasetError(f"{address}: only http(s) addresses are fetched")
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked
        content: bytes = answer.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise OSError(f"sent more than {LARGEST_BYTES} bytes")
    return content


def _write_whole(path: Path, content: bytes) -> None:
    """Write beside and rename, so that no reader ever meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        Path(beside).replace(path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise
