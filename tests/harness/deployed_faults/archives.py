"""Spoiled archives for what reads backups, apps' bundles and shards of records.

``python -m harness.deployed_faults.archives --count 1000000`` prints the table.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fedlens.api.backups import MANIFEST, restore
from fedlens.data.formats.records import SourceColumns
from fedlens.data.formats.tars import tar_records
from fedlens.deploy.bundles import bundle_problem
from fedlens.server.config.tree import Config
from harness.fuzzing.__main__ import fuzz, row_of_parser
from harness.fuzzing.mutations import Source, spoiled
from harness.fuzzing.structured import Make, zip_of
from harness.fuzzing.targets import FuzzTarget


def archives(folder: Path) -> list[FuzzTarget]:
    """Readers of backups, apps' bundles and shards, over archives whose checksums fit."""
    files = {"config.toml": Config().to_toml().encode(), "checkpoint/filter": b"x"}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"version": 1, "files": hashes}).encode()
    backup = {MANIFEST: manifest, **files}
    app = {"pyproject.toml": _PROJECT, ".info/CONTENT": b"pyproject.toml"}
    packed, back = folder / "a.tar", folder / "back"

    def bring_back(data: object) -> object:
        try:
            return restore(_written(packed, data), back)
        finally:
            shutil.rmtree(back, ignore_errors=True)

    def judge(data: object) -> object:
        return bundle_problem(_raw(data), hashlib.sha256(_raw(data)).hexdigest(), ())

    def records(data: object) -> object:
        return list(tar_records(_written(packed, data), SourceColumns()))

    return [
        FuzzTarget("archive: backup", odd_tar(backup), bring_back),
        FuzzTarget("archive: app bundle", odd_bundle(app), judge),
        FuzzTarget("archive: shard", odd_tar(_SHARD), records),
    ]


_PROJECT = b"""[tool.flwr.app.components]
serverapp = "fedlens.server.app:app"
clientapp = "fedlens.client.app:app"
"""


_SHARD = {"a/0.png": b"no picture", "a/0.cls": b"3", "a/0.json": b'{"x": 1}', "a/1.txt": b"x"}


def odd_bundle(members: Mapping[str, bytes]) -> Make:
    """A zip of an app's files, one spoiled, or the zip itself."""

    def make(source: Source) -> bytes:
        changed, name = dict(members), source.choice(list(members))
        if source.random() < 0.7:
            changed[name] = spoiled([members[name]], source)
        whole = zip_of(changed, source.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
        return spoiled([whole], source) if source.random() < 0.5 else whole

    return make


def odd_tar(members: Mapping[str, bytes]) -> Make:
    """A tar of files whose headers' checksums fit, of odd names, kinds and sizes, or cut short."""
    names = (*members, "/etc/x", "../x", "a/b", "x" * 300, "", ".", "place.json")
    kinds = (
        *(tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE),
        *(tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE),
    )

    def make(source: Source) -> bytes:
        made, odd = io.BytesIO(), source.randrange(len(members))
        with tarfile.open(fileobj=made, mode="w") as tar:
            for place, (name, content) in enumerate(members.items()):
                entry = tarfile.TarInfo(name)
                if place == odd and source.random() < 0.5:
                    content = spoiled([content], source)
                elif place == odd:
                    entry.name = source.choice(names)
                    entry.type, entry.linkname = source.choice(kinds), source.choice(names)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
                if place == odd and source.random() < 0.1:
                    tar.addfile(entry, io.BytesIO(content))
        whole = made.getvalue()
        return spoiled([whole], source) if source.random() < 0.5 else whole

    return make


def _written(path: Path, data: object) -> Path:
    path.write_bytes(_raw(data))
    return path


def _raw(data: object) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError("a target of bytes was given something else")
    return data


def main() -> None:
    """Fuzz all, or those that are named, and print their rows."""
    parser = argparse.ArgumentParser(prog="python -m harness.deployed_faults.archives")
    parser.add_argument("--count", type=int, default=2000, help="inputs a parser")
    parser.add_argument("--only", default="", help="parsers whose name has this in it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most a parser, of CPU")
    args = parser.parse_args()
    home = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=home if home.is_dir() else None) as folder:
        for target in archives(Path(folder)):
            if args.only not in target.name:
                continue
            done = fuzz(target, args.count, 0, args.seconds)
            Console().print(" | ".join(row_of_parser(done)), highlight=False)
            for problem, example in done.examples.items():
                Console().print(f"{problem} from {example}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
