"""``fedlens db``: the store's schema."""

from __future__ import annotations

import argparse

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, say


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "db",
        help=VERBS["db"],
        description="Bring a store to this version's schema, or say what it is at.",
        epilog="example: fedlens db upgrade --store sqlite:///runs/demo/store.db",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("upgrade", "create the schema or bring it to this version"),
        ("check", "compare the schema with this version's; changes nothing"),
    ):
        action = actions.add_parser(
            name,
            help=about,
            description=about.capitalize() + ".",
            epilog=f"example: fedlens db {name} --store runs/demo/store.db",
        )
        action.add_argument("--store", required=True, help="URL or path of the store")
        add_json_flag(action)
        action.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Upgrade or check; a store that is not current fails the check."""
    from fedlens.store import check, upgrade

    status = (upgrade if args.action == "upgrade" else check)(args.store)
    say(f"revision {status.current or 'none'}, this version needs {status.head}")
    for line in status.drift:
        say(f"  differs: {line}")
    if not status.ok and args.action == "check":
        say(f"run `fedlens db upgrade --store {args.store}`")
    if args.json:
        print_json({"current": status.current, "head": status.head, "drift": list(status.drift)})
    return 0 if status.ok else 1
