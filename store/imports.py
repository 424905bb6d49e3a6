"""Labels from elsewhere, onto samples that are here: all of a file or nothing.

A file names samples by the digest of their pixels and brings labels alone. No image comes this way,
so none comes in that is not ours.
"""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedlens.store.answers import annotate_in, last_row
from fedlens.store.checks import require
from fedlens.store.errors import StoreError
from fedlens.store.exporters.label_studio import LABEL, NOTE
from fedlens.store.exporters.tables import unquoted
from fedlens.store.labelling import Annotation
from fedlens.store.projects import ensure_user, labels_of, require_project
from fedlens.store.queues import QueueMethods
from fedlens.store.schema import AnnotationTable, SampleTable
from fedlens.store.schema_team import TaskTable

_NAMESPACE = uuid.UUID("0f3b2b0c-7f0e-4a53-9a86-7d4f4d1c2c11")
_SHOWN = 3
_COLUMNS = ("sha256", "label", "annotator", "note", "more_labels", "sample_id")
_PART, _ESCAPED = re.compile(r"(?:[^;\\]|\\.)+"), re.compile(r"\\(.)")
_DIGEST = "sample_sha256"
"""How a task's data names its sample."""
LONGEST_NAME = 200
IMPORTED = "import-"
"""Ids of imported answers begin so."""


@dataclass(frozen=True, kw_only=True)
class ImportedLabel:
    """One answer of a file."""

    sha256: str
    """Of the sample's pixels."""
    label: str | None
    """Name of a label of the project; ``None`` for a skip."""
    annotator: str
    note: str | None = None
    more_labels: tuple[str, ...] = ()
    sample_id: int | None = None
    """Which of several samples with exactly these pixels, where the file says so."""

    def __post_init__(self) -> None:
        name = self.annotator
        fits = len(name) <= LONGEST_NAME and name.isprintable()
        require(fits, "annotator", name[:80], f"give a name of one line, {LONGEST_NAME} at most")
        for part in (self.label or "", self.note or "", *self.more_labels):
            # JSON may hold halves of letters, which no database takes.
            whole = part.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in part)
            require(whole, "text", part[:80], "it is no text")


class ImportedLabels(list[ImportedLabel]):
    """Answers of a file, and how many of its annotations are empty, which is no answer."""

    empty = 0


def read_labels_file(content: bytes) -> ImportedLabels:
    """Read Label Studio's JSON, JSON-MIN, CSV or TSV, or our table (CSV), whichever it is.

    Raises:
        StoreError: it is none of them, a line names no sample, or no annotation has an answer.
    """
    found = ImportedLabels()
    every = _read(content)
    found += [one for one in every if one is not None]
    found.empty = len(every) - len(found)
    if found.empty and not found:
        raise StoreError(f"the file has no answer: its {found.empty} annotations are empty")
    return found


def _read(content: bytes) -> Sequence[ImportedLabel | None]:
    """Answers in the file's order; None for an empty annotation."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StoreError(f"the file is no text (byte {error.start}): give CSV or JSON") from None
    try:
        if text.lstrip()[:1] in ("[", "{"):
            return _from_json(text)
        return _from_csv(text)
    except csv.Error as error:
        raise StoreError(f"the table cannot be read: {error}") from None


class ImportMethods(QueueMethods):
    """Labels from elsewhere."""

    def import_labels(self, project_id: int, labels: Iterable[ImportedLabel]) -> int:
        """Add answers of a file to a project, all or none; give back how many were new.

        They are stored under ``<annotator> (imported)``, so that none passes for an account's own.
        The same file again adds nothing; another answer of an annotator about a sample supersedes
        the one before, and of several in one file the last one counts.

        Raises:
            StoreError: samples or labels that the project has not got, with how many they are.
        """
        given = list(labels)
        self._bring_up_to_date(project_id)
        return self._appending(lambda session: _import(session, project_id, given))


def _import(session: Session, project_id: int, given: list[ImportedLabel]) -> int:
    project = require_project(session, project_id)
    names = {label.name: label.label_id for label in labels_of(session, project_id)}
    wanted = {name for one in given for name in (one.label, *one.more_labels) if name is not None}
    _refuse("labels", sorted(wanted - names.keys()), project.name)
    samples = _samples_by_digest(session, project_id)
    _refuse("samples", [x.sha256 for x in given if x.sha256 not in samples], project.name)
    said = {
        (one.annotator, sample_id): one
        for one in given
        for sample_id in _meant(one, samples[one.sha256])
    }
    users = {name: ensure_user(session, f"{name} (imported)") for name, _ in said}
    return sum(
        _take(session, project_id, sample_id, users[name], one, names)
        for (name, sample_id), one in said.items()
    )


def _meant(one: ImportedLabel, alike: list[int]) -> list[int]:
    """Of the samples with an answer's pixels the one it names; all where it names none of them."""
    return [one.sample_id] if one.sample_id in alike else alike


def _take(
    session: Session,
    project_id: int,
    sample_id: int,
    user_id: int,
    one: ImportedLabel,
    names: Mapping[str, int],
) -> bool:
    """Store an answer unless it is in force already; say whether it was stored."""
    before = last_row(session, project_id, user_id, sample_id)
    answer = Annotation(
        client_uuid=_identity(project_id, sample_id, one, before),
        project_id=project_id,
        sample_id=sample_id,
        user_id=user_id,
        label_id=None if one.label is None else names[one.label],
        skip_reason="skipped in an imported file" if one.label is None else None,
        note=one.note,
        more_labels=[names[name] for name in one.more_labels] or None,
    )
    parts = ("label_id", "skip_reason", "note", "more_labels")
    if before is not None and all(getattr(before, p) == getattr(answer, p) for p in parts):
        return False
    return annotate_in(session, answer)[1]


def _refuse(what: str, unknown: list[str], project: str) -> None:
    if unknown:
        shown = ", ".join(repr(one[:64]) for one in unknown[:_SHOWN])
        more = ", ..." if len(unknown) > _SHOWN else ""
        raise StoreError(
            f"{len(unknown)} {what} of the file are none of project {project!r} ({shown}{more}): "
            "nothing was imported"
        )


def _samples_by_digest(session: Session, project_id: int) -> dict[str, list[int]]:
    rows = select(SampleTable.sha256, SampleTable.sample_id).join(
        TaskTable, TaskTable.sample_id == SampleTable.sample_id
    )
    found: dict[str, list[int]] = defaultdict(list)
    for digest, sample_id in session.execute(rows.where(TaskTable.project_id == project_id)):
        found[digest].append(sample_id)
    return found


def _identity(
    project_id: int, sample_id: int, one: ImportedLabel, before: AnnotationTable | None
) -> str:
    """An id of the answer and of what it supersedes: somebody may come back to a first thought."""
    earlier = None if before is None else before.annotation_id
    said = [project_id, sample_id, one.annotator, one.label, *one.more_labels, one.note, earlier]
    return IMPORTED + str(uuid.uuid5(_NAMESPACE, json.dumps(said)))


def _from_csv(text: str) -> Sequence[ImportedLabel | None]:
    first = text.partition("\n")[0]
    between = "\t" if "\t" in first and "," not in first else ","
    reader = csv.DictReader(io.StringIO(text), delimiter=between)
    if _DIGEST in (reader.fieldnames or ()):
        return [_flat(row, f"line {at}") for at, row in enumerate(reader, start=2)]
    missing = {"sha256", "label", "annotator"} - set(reader.fieldnames or ())
    if missing:
        raise StoreError(f"the table has no column {sorted(missing)[0]!r}: export one to see how")
    return [_line(number, row) for number, row in enumerate(reader, start=2)]


def _line(at: int, row: Mapping[str, str | None]) -> ImportedLabel:
    cells = {name: unquoted(row.get(name) or "") for name in _COLUMNS}
    _require_digest(cells["sha256"], f"line {at}")
    more = [_ESCAPED.sub(r"\1", one).strip() for one in _PART.findall(cells["more_labels"])]
    number = cells["sample_id"]
    return ImportedLabel(
        sha256=cells["sha256"],
        label=cells["label"] or None,
        annotator=cells["annotator"] or "somebody",
        note=cells["note"] or None,
        more_labels=tuple(one for one in more if one),
        sample_id=int(number) if re.fullmatch(r"[0-9]{1,18}", number) else None,
    )


def _from_json(text: str) -> Sequence[ImportedLabel | None]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the file is no JSON: {error}") from None
    tasks = said if isinstance(said, list) else [said]
    if tasks and all(isinstance(one, dict) and _DIGEST in one for one in tasks):
        return [_flat(one, f"task {at}") for at, one in enumerate(tasks, start=1)]
    return _from_tasks(tasks)


def _flat(row: Mapping[str, Any], where: str) -> ImportedLabel | None:
    """An annotation of JSON-MIN or a table: cells by the name of the interface's part."""
    _require_digest(row.get(_DIGEST), where)
    chosen = _listed(row.get(LABEL) or row.get("choice"), "choices", where)
    notes = _listed(row.get(NOTE), "text", where)
    if not chosen:
        return None
    number = str(row.get("id") or "")
    return ImportedLabel(
        sha256=str(row[_DIGEST]),
        label=chosen[0],
        annotator=_annotator(row.get("annotator")),
        note=notes[0] if notes else None,
        more_labels=tuple(chosen[1:]),
        sample_id=int(number) if re.fullmatch(r"[0-9]{1,18}", number) else None,
    )


def _listed(given: object, key: str, where: str) -> list[str]:
    """Texts of a cell: one text, a list, or ``{key: list}``, in a table as JSON."""
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # else a text that begins so
            given = json.loads(given)
    if isinstance(given, dict):
        given = given.get(key)
    if isinstance(given, str):
        given = [given]
    if given is not None and not isinstance(given, list):
        raise StoreError(f"{where}: {key} are no texts as Label Studio exports them")
    return [str(one) for one in given or [] if str(one)]


def _from_tasks(tasks: Iterable[Any]) -> Sequence[ImportedLabel | None]:
    found: list[ImportedLabel | None] = []
    for number, task in enumerate(tasks, start=1):
        where = f"task {number}"
        data = task.get("data") if isinstance(task, dict) else None
        digest = data.get("sample_sha256") if isinstance(data, dict) else None
        _require_digest(digest, where)
        said = task.get("annotations", [])
        if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
            raise StoreError(f"{where}: annotations is no list of objects")
        number = task.get("id")
        sample_id = number if isinstance(number, int) else None
        found += [_annotation(str(digest), sample_id, one, where) for one in said]
    return found


def _annotation(
    digest: str, sample_id: int | None, said: Mapping[str, Any], where: str
) -> ImportedLabel | None:
    """An answer; None where it has neither a choice nor is skipped."""
    try:
        by_kind = {one["type"]: one["value"] for one in said.get("result") or []}
        chosen = [str(name) for name in by_kind.get("choices", {}).get("choices", [])]
        notes = [str(one) for one in by_kind.get("textarea", {}).get("text", [])]
    except (AttributeError, KeyError, TypeError):
        raise StoreError(f"{where}: its result is not what Label Studio exports") from None
    skipped = bool(said.get("was_cancelled"))
    if not chosen and not skipped:
        return None
    return ImportedLabel(
        sha256=digest,
        label=None if skipped else chosen[0],
        annotator=_annotator(said.get("completed_by")),
        note=notes[0] if notes else None,
        more_labels=() if skipped else tuple(chosen[1:]),
        sample_id=sample_id,
    )


def _annotator(given: object) -> str:
    if isinstance(given, dict):
        given = given.get("email") or given.get("id")
    return str(given) if given else "somebody"


def _require_digest(value: object, where: str) -> None:
    if not isinstance(value, str) or len(value) != 64:
        raise StoreError(f"{where} names no sample: give the digest of its pixels (sha256)")
