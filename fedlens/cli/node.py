"""``fedlens node``: what an owner of data does with it before their node takes part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, file_to_write, given_settings
from fedlens.cli.output import print_json, say, tell
from fedlens.foundation.errors import ExitStatus

if TYPE_CHECKING:
    from fedlens.api.nodes import NodePreparation
    from fedlens.client.preparing.report import NodeReport

EVERY = 10_000


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "node",
        help=VERBS["node"],
        description="For the owner of data, on the owner's machine: nothing of it leaves.",
        epilog="example: fedlens node prepare pictures --federation federation.toml --out store",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_prepare(actions)
    _add_check(actions)
    _add_overlap(actions)
    _add_secret(actions)


def _add_prepare(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "prepare",
        help="bring records into the federation's form, as a store for the node",
        description="Read records of any known format, map labels to the agreed classes, hash "
        "users' names under the node's own secret, bring pictures to the agreed size and colour, "
        "and write a store that the node reads record by record. What cannot be decoded is named, "
        "counted and left out. Prints what the store holds: figures of real people, for its owner.",
        epilog="example: fedlens node prepare pictures --federation federation.toml --out store",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="folder or file of records")
    add("--out", required=True, metavar="DIR", help="new folder of the store")
    add("--federation", required=True, metavar="FILE", help="the federation.toml of all owners")
    _add_source_flags(parser)
    add("--secret", metavar="FILE", help="the node's own secret, made where it is not there "
        "(default: DIR.secret)")  # fmt: skip
    add("--owners-secret", metavar="FILE", help="secret that the owners share: writes "
        "fingerprints.bin, by which two owners find users whom both have")  # fmt: skip
    add("--without", metavar="FILE", help="another node's fingerprints.bin: leave its users out")
    add("--roster", metavar="FILE", help="names of all enrolled users, a line each")
    add("--replace", action="store_true", help="put the store in the place of one that is there")
    add_json_flag(parser)
    parser.set_defaults(run=run_prepare)


def _add_check(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "check",
        help="what a store holds and what is wrong, or what preparing records would say",
        description="Look through a prepared store, or records that are not prepared yet (which "
        "needs --federation), and print each fault with the file, the line and the fix. Exit "
        "status 1 where there is one.",
        epilog="example: fedlens node check store --federation federation.toml",
    )
    add = parser.add_argument
    add("source", metavar="PATH", help="a store, or a folder or file of records")
    add("--federation", metavar="FILE", help="the federation.toml of all owners")
    add("--report", metavar="FILE", help="write it as one HTML page too, with pictures, for the "
        "owner: counts, what was left out and why, how it looks, what will be sent")  # fmt: skip
    _add_source_flags(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run_check)


def _add_overlap(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "overlap",
        help="how many users two nodes share",
        description="Compare two lists of fingerprints, which both owners made under one "
        "--owners-secret. A user at two nodes could move a sum by twice the clip: one of both "
        "leaves the shared users out (prepare --without). Exit status 1 where there are some.",
        epilog="example: fedlens node overlap store other/fingerprints.bin",
    )
    parser.add_argument("mine", metavar="MINE", help="a store, or its fingerprints.bin")
    parser.add_argument("other", metavar="OTHER", help="the other node's fingerprints.bin")
    add_json_flag(parser)
    parser.set_defaults(run=run_overlap)


def _add_secret(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "secret",
        help="make a secret for owners to share",
        description="Write 32 random bytes to a new file that its owner alone may read. Give it to "
        "the other owners on a way that the server's operator cannot read.",
        epilog="example: fedlens node secret owners.secret",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the new file")
    parser.set_defaults(run=run_secret)


def _add_source_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--format", default="", metavar="NAME", help="of the source (default: by its files)")
    add("--label", default="", metavar="COLUMN", help="of the class (default: the usual one); "
        "of a column a class, of 0 and 1, all of them: 'A|B'")  # fmt: skip
    add("--user", default="", metavar="COLUMN", help="of the user (default: the usual one)")
    add("--user-from-name", default="", metavar="REGEX",
        help="find the user in a file's name, as in 'person(\\d+)'")  # fmt: skip
    add("--image", default="", metavar="COLUMN", help="of the pictures or their files, or what "
        "stands before the number of columns of pixels")  # fmt: skip
    add("--sensitive", default="", metavar="COLUMN",
        help="of the sensitive attribute (default: the one of its name)")  # fmt: skip
    owner = parser.add_mutually_exclusive_group()
    owner.add_argument("--one-user", action="store_const", dest="owner", const="one", default="",
                       help="all records are one person's")  # fmt: skip
    owner.add_argument("--each-record-a-user", action="store_const", dest="owner", const="each",
                       help="each record is a person's of its own")  # fmt: skip
    add("--map", action="append", default=[], dest="mapped", metavar="OWN=CLASS",
        help="which agreed class a label is, or - to leave it out; | is every label of several "
        "classes; may be given often")  # fmt: skip
    add("--whole", action="store_true", help="take in validation and test parts too")
    add("--each-frame", action="store_true", help="take each frame or page of a picture")
    add("--label-model", metavar="FILE",
        help="names records, where federation.toml says labels = \"model:SHA256\"")  # fmt: skip


def run_prepare(args: argparse.Namespace) -> int:
    """Prepare, and say what there is."""
    from fedlens.api.nodes import prepare_node

    asked = _preparation(args)
    report = prepare_node(args.source, args.out, args.federation, asked, progress=_progress)
    _show(report)
    say(f"{args.out}: ready; name it in the node's configuration: data={Path(args.out).absolute()}")
    say("these are figures of real people, for their owner alone; looks.png shows some pictures")
    if args.json:
        print_json({"path": args.out, **report.to_json()})
    return ExitStatus.DONE


def run_check(args: argparse.Namespace) -> int:
    """Look through, and say what is wrong."""
    from fedlens.api.nodes import check_node

    asked = _preparation(args)
    page = None if args.report is None else file_to_write(Path(args.report), "--report")
    report, faults = check_node(args.source, args.federation, asked, page=page, progress=_progress)
    _show(report, but=faults)
    if page is not None:
        say(f"{page}: a page with figures and pictures of real people, for their owner alone")
    for fault in faults:
        tell(f"wrong: {fault}")
    if args.json:
        print_json({"faults": faults, **report.to_json()})
    return ExitStatus.FAILED if faults else ExitStatus.DONE


def run_overlap(args: argparse.Namespace) -> int:
    """Compare two lists of fingerprints."""
    from fedlens.api.nodes import shared_users

    count = shared_users(args.mine, args.other)
    say(f"{count} users are at both nodes")
    if count:
        tell("one of both prepares anew with --without and the other's list: a user at two nodes "
             "could move a sum by twice the clip")  # fmt: skip
    if args.json:
        print_json({"shared": count})
    return ExitStatus.FAILED if count else ExitStatus.DONE


def run_secret(args: argparse.Namespace) -> int:
    """Make a secret."""
    from fedlens.api.nodes import secret_file
    from fedlens.foundation.errors import WrongUse

    if args.file.exists():
        raise WrongUse(f"{args.file}: is there already; name a new file")
    secret_file(args.file)
    say(f"{args.file}: for the owners alone; no server may have it")
    return ExitStatus.DONE


def _preparation(args: argparse.Namespace) -> NodePreparation:
    from fedlens.api.nodes import NodePreparation, as_pairs

    given = given_settings(NodePreparation, args)
    return NodePreparation(**{**given, "mapped": as_pairs(args.mapped)})


def _show(report: NodeReport, but: Sequence[str] = ()) -> None:
    """Say what the report says, but for lines that are told as wrong anyway."""
    for line in report.lines():
        if line not in but:
            say(line)


def _progress(done: int) -> None:
    if done and done % EVERY == 0:
        tell(f"{done} records looked at")
