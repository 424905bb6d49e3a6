"""What a child process reads of labels in JSON: COCO, Label Studio, lists of objects, JSON lines.

All of them are told as rows of texts. Several values of one cell are joined by ``|``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedlens.data.isolated.process import Piece

ROWS = 512
MOST_NAMES = 10_000
SEVERAL = "|"
_LABELS = ("choices", "labels", "rectanglelabels", "polygonlabels", "ellipselabels",
           "keypointlabels", "brushlabels")  # fmt: skip
"""Kinds of Label Studio's results that name classes."""
Row = dict[str, str]


def read_rows(path: Path) -> Iterator[Piece]:
    """Pieces of ``rows``, each a place and texts; the first row has the names of all keys.

    Raises:
        ValueError: it is none of them.
    """
    rows = _rows(path)
    names = list(dict.fromkeys(name for row in rows() for name in row))
    if not names or len(names) > MOST_NAMES:
        raise ValueError("it has no objects with values" if not names else "it has too many keys")
    yield {"rows": [(0, names)]}, b""
    some: list[tuple[int, list[str]]] = []
    for place, row in enumerate(rows(), start=1):
        some.append((place, [row.get(name, "") for name in names]))
        if len(some) == ROWS:
            yield {"rows": some}, b""
            some = []
    yield {"rows": some}, b""


def _rows(path: Path) -> Any:
    """A function that gives the rows anew each time; ``{FILE: LABEL}`` has rows too."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return lambda: _of_lines(path)
    said = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(said, dict) and {"images", "annotations", "categories"} <= said.keys():
        found = list(_of_coco(said))
    elif isinstance(said, dict) and said and all(isinstance(x, str | int) for x in said.values()):
        found = [{"file": str(name), "label": str(value)} for name, value in said.items()]
    elif isinstance(said, list) and said and all(isinstance(one, dict) for one in said):
        tasks = all(isinstance(one.get("data"), dict) for one in said)
        found = list(_of_tasks(said) if tasks else map(_flat, said))
    else:
        raise ValueError("it is no COCO, no Label Studio export and no list of objects")
    return lambda: iter(found)


def _of_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                said = json.loads(line)
                if not isinstance(said, dict):
                    raise ValueError(f"line {number} is no object")
                yield _flat(said)


def _flat(said: dict[str, Any]) -> Row:
    """An object's plain values, and its lists of plain values."""
    return {str(name): text for name, value in said.items() if (text := _text(value)) is not None}


def _text(value: Any) -> str | None:
    if value is None:
        return ""
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        value = value["choices"]
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return SEVERAL.join(dict.fromkeys(str(one).strip() for one in value))
    return str(value).strip() if isinstance(value, str | int | float) else None


def _of_coco(said: dict[str, Any]) -> Iterator[Row]:
    """A row a picture: ``file``, ``label`` (each category that it has once), and its own values."""
    names = {one["id"]: str(one["name"]) for one in said["categories"]}
    held: dict[Any, set[Any]] = {}
    for one in said["annotations"]:
        if "category_id" not in one:
            raise ValueError("its annotations name no category: give the file of instances")
        held.setdefault(one["image_id"], set()).add(one["category_id"])
    for image in said["images"]:
        own = [name for number, name in names.items() if number in held.get(image["id"], ())]
        row = {name: text for name, text in _flat(image).items() if name != "file_name"}
        yield {**row, "file": str(image["file_name"]), "label": SEVERAL.join(own)}


def _of_tasks(tasks: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """A row a task: its data, and what was chosen, by the control's name (one alone: ``label``).

    What all its annotators chose counts, each once; those that are cancelled or empty count not,
    and where one is the ground truth it alone does.
    """
    said = [(_flat(task["data"]), _chosen(task)) for task in tasks]
    controls = {name for _, chosen in said for name in chosen}
    for row, chosen in said:
        own = {name: SEVERAL.join(dict.fromkeys(found)) for name, found in chosen.items()}
        yield {**row, **({"label": "".join(own.values())} if len(controls) == 1 else own)}


def _chosen(task: dict[str, Any]) -> dict[str, list[str]]:
    given = task.get("annotations") or task.get("completions") or []
    given = [one for one in given if isinstance(one, dict) and not one.get("was_cancelled")]
    given = [one for one in given if one.get("ground_truth")] or given
    found: dict[str, list[str]] = {}
    for result in (one for said in given for one in said.get("result") or []):
        value = result.get("value") or {}
        for kind in _LABELS:
            if isinstance(value.get(kind), list):
                own = found.setdefault(str(result.get("from_name") or "label"), [])
                own += [str(name).strip() for name in value[kind]]
    return found
