"""``fedlens labels``: annotations out of a run's store and back, and more samples to label."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument, file_to_write
from fedlens.cli.output import print_json, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.store import Store, StoredProject

ACTOR = "command line"
LARGEST_FILE = 2**28


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "labels",
        help=VERBS["labels"],
        description="Export and import the labels of a project, or draw more samples of a class.",
        epilog="example: fedlens labels export runs/demo --project digits --format label-studio",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    out = _action(actions, "export", "write a project's labels to a file", "--project digits")
    out.add_argument("--project", required=True, help="its name")
    out.add_argument(
        "--format",
        default="csv",
        help="csv, zip, label-studio, huggingface, webdataset, or a plug-in (default: csv)",
    )
    out.add_argument("--out", type=Path, help="file to write (default: named like the project)")
    back = _action(
        actions,
        "import",
        "add the labels of a file (CSV or Label Studio's JSON) to samples that are here; "
        "all of them or none",
        "--project digits labels.csv",
    )
    back.add_argument("file", type=Path, metavar="FILE", help="with the labels")
    back.add_argument("--project", required=True, help="its name")
    shown = _action(
        actions,
        "interface",
        "write the labelling interface under which Label Studio shows an export",
        "--project digits --out digits.xml",
    )
    shown.add_argument("--project", required=True, help="its name")
    shown.add_argument("--out", type=Path, help="file to write (default: named like the project)")
    more = _action(
        actions,
        "refill",
        "draw more samples of a class for the run's queues; costs no privacy",
        "--class 7 --count 200",
    )
    more.add_argument(
        "--class", type=int, dest="requested", help="to ask for; left out where data are unlabelled"
    )
    more.add_argument("--count", type=int, default=100, help="how many (default: 100)")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, more: str
) -> argparse.ArgumentParser:
    action = actions.add_parser(
        name,
        help=about,
        description=about[:1].upper() + about[1:] + ".",
        epilog=f"example: fedlens labels {name} runs/demo {more}",
    )
    add_run_argument(action)
    add_json_flag(action)
    action.set_defaults(run=run)
    return action


def run(args: argparse.Namespace) -> int:
    """Do one action on the run's store."""
    from fedlens.api.runs import open_run
    from fedlens.store import open_store

    kept = open_run(args.run_dir, store=args.store)
    if args.action == "refill":
        from fedlens.api.label_curves import refill

        added = refill(kept, args.requested, args.count)
        kind = "" if args.requested is None else f" of class {args.requested}"
        say(f"{added} more samples{kind}, at no cost to privacy")
        found: dict[str, object] = {"added": added}
    else:
        with open_store(kept.store) as store:
            actions = {"export": _export, "import": _import, "interface": _interface}
            found = actions[args.action](store, args)
    if args.json:
        print_json(found)
    return 0


def _export(store: Store, args: argparse.Namespace) -> dict[str, object]:
    from fedlens.foundation.files import write_durably
    from fedlens.store import EXPORTERS

    project, exporter = _project(store, args.project), EXPORTERS[args.format]
    answers = store.labelled_samples(project.project_id)
    path = file_to_write(args.out or Path(f"labels-{project.project_id}{exporter.suffix}"))
    # Whole or not there: an export that is cut off leaves no half file under this name.
    write_durably(path, exporter.export(answers))
    store.log(ACTOR, "exported", f"{project.name} ({args.format})")
    say(f"{len(answers)} answers written to {path}")
    return {"answers": len(answers), "file": str(path)}


def _interface(store: Store, args: argparse.Namespace) -> dict[str, object]:
    from fedlens.foundation.files import write_durably
    from fedlens.store import labelling_interface

    project = _project(store, args.project)
    labels = store.labels(project.project_id)
    path = file_to_write(args.out or Path(f"labels-{project.project_id}.xml"))
    write_durably(path, labelling_interface(labels, several=project.several).encode())
    say(f"{len(labels)} labels written to {path}")
    return {"labels": len(labels), "file": str(path)}


def _import(store: Store, args: argparse.Namespace) -> dict[str, object]:
    from fedlens.store import read_labels_file

    project = _project(store, args.project)
    size = args.file.stat().st_size
    if size > LARGEST_FILE:
        raise WrongUse(f"{args.file} has {size} bytes: an import takes at most {LARGEST_FILE}")
    labels = read_labels_file(args.file.read_bytes())
    added = store.import_labels(project.project_id, labels)
    store.log(ACTOR, "imported", f"{project.name} ({added} answers)")
    say(f"{added} of {len(labels)} answers were new; the others were there already")
    if labels.empty:
        say(f"{labels.empty} annotations are empty, which is no answer: they were passed over")
    return {"answers": len(labels), "added": added, "empty": labels.empty}


def _project(store: Store, name: str) -> StoredProject:
    projects = {one.name: one for one in store.projects()}
    if name not in projects:
        there = ", ".join(repr(one) for one in projects) or "none"
        raise WrongUse(f"--project {name!r}: there is no such project; there are: {there}")
    return projects[name]
