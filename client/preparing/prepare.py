"""From a source of records to a node's store: one pass, a record at a time.

Whether anything can be decoded is found here, on the owner's machine, named, counted and left out,
and never by a node that answers a request: what a node does must not depend on what users hold.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from fedlens.client.contract import CONTRACT
from fedlens.client.node.store import LAYOUT, LEFT_OUT, LOOKS, STORE, NodeStoreFacts
from fedlens.client.preparing.index import write_index, write_people
from fedlens.client.preparing.intake import Intake, Preparation, PrepareError, Told
from fedlens.client.preparing.report import NodeReport, report_on
from fedlens.data.formats.formats import RecordSource
from fedlens.data.formats.records import SourceError
from fedlens.foundation.files import flush_folder, write_durably


def prepare(
    source: RecordSource, wanted: Preparation, out: Path, *, replace: bool = False,
    told: Told = lambda _: None,
) -> NodeReport:  # fmt: skip
    """Write a node's store of a source's records.

    What is in it: `fedlens.client.node.store`.

    Guarantees: ``out`` is whole or not there; one record is in memory at a time.

    Args:
        source: of the records.
        wanted: what the preparation goes by.
        out: a new or empty folder; an existing store with ``replace``.
        replace: put the new store in the place of one that is there.
        told: told how many records were looked at.

    Raises:
        PrepareError: a label or value is not among the agreed ones, no record is left, or ``out``
            is taken.
        SourceError: the source cannot be read.
    """
    _check_out(out, replace)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))  # 0700
    try:
        report = _prepared(source, wanted, part, told)
        _put(part, out)
    except (PrepareError, SourceError) as error:
        raise type(error)(f"{error}{_kept_list(part, out)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return report


def look_through(
    source: RecordSource, wanted: Preparation, told: Told = lambda _: None
) -> NodeReport:
    """What `prepare` would say of a source; nothing is kept.

    Raises:
        PrepareError, SourceError: as there.
    """
    with tempfile.TemporaryDirectory(prefix="fedlens-check-") as folder:
        return _prepared(source, wanted, Path(folder), told)


def _check_out(out: Path, replace: bool) -> None:
    if not out.exists() or (out.is_dir() and next(out.iterdir(), None) is None):
        return
    if not replace or not (out / STORE).is_file():
        what = "has a store" if (out / STORE).is_file() else "has something else in it"
        raise PrepareError(f"--out {out}: {what}; name a new folder, or --replace a store")


def _kept_list(part: Path, out: Path) -> str:
    """Keep the list of what was left out beside the store that was not made; where it lies."""
    list_of, kept = part / LEFT_OUT, out.with_name(f"{out.name}.{LEFT_OUT}")
    if not list_of.is_file() or list_of.stat().st_size <= len("where,why\r\n"):
        return ""
    kept.unlink(missing_ok=True)
    list_of.chmod(0o600)
    list_of.replace(kept)
    return f"; {kept} lists what was left out"


def _put(part: Path, out: Path) -> None:
    old = part.with_name(f"{part.name}-old")
    if out.exists():
        out.replace(old)
    part.replace(out)
    flush_folder(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def _prepared(source: RecordSource, wanted: Preparation, folder: Path, told: Told) -> NodeReport:
    with Intake(source, wanted, folder) as one:
        one.run(told)
    one.check()
    one.compare()
    facts = write_index(folder, wanted.contract, wanted.secret, wanted.roster)
    if wanted.owners_secret is not None:
        both = wanted.secret, wanted.owners_secret
        write_people(folder, wanted.contract.name, both, wanted.roster)
    one.write_fingerprints()
    (folder / LOOKS).write_bytes(one.looks.png())
    write_durably(folder / CONTRACT, wanted.contract.to_toml().encode(), private=True)
    told_facts = NodeStoreFacts(
        layout=LAYOUT, contract=wanted.contract.digest(), records=facts[0], users=facts[1],
        files={file.stem: _digest(file) for file in sorted(folder.glob("*.npy"))},
    )  # fmt: skip
    write_durably(folder / STORE, told_facts.model_dump_json(indent=1).encode(), private=True)
    tally = one.tally
    return report_on(folder, tally.counts, tally.examples, one.notes)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
