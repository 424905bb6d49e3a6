"""``fedlens accounts``: who may sign in to the dashboard, and as what."""

from __future__ import annotations

import argparse
import getpass
import sys

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, say
from fedlens.foundation.errors import WrongUse

ROLES = ("viewer", "annotator", "reviewer", "engineer", "officer", "admin")
ACTOR = "command line"
ACTIONS = (
    ("add", "make an account"),
    ("list", "show all accounts"),
    ("role", "give an account another role"),
    ("password", "give an account another password, and end its sessions"),
    ("disable", "shut an account out, its sessions too; its answers stay"),
    ("enable", "let a disabled account in again"),
    ("log", "show what people did, the last first"),
)
EXAMPLES = {"add": " ann --role annotator", "role": " ann reviewer", "list": "", "log": ""}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "accounts",
        help=VERBS["accounts"],
        description="Keep the accounts of people who sign in to the dashboard: viewers look, "
        "annotators label, reviewers also decide and export, engineers also make projects, "
        "officers look and approve what is spent, admins do all but that and keep accounts.",
        epilog="example: fedlens accounts add --store runs/demo/store.db ann --role annotator",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about in ACTIONS:
        more = EXAMPLES.get(name, " ann")
        action = actions.add_parser(
            name,
            help=about,
            description=about.capitalize() + ".",
            epilog=f"example: fedlens accounts {name} --store runs/demo/store.db{more}",
        )
        action.add_argument("--store", required=True, help="URL or path of the store")
        if name not in ("list", "log"):
            action.add_argument("name", metavar="NAME", help="of the account")
        if name == "add":
            action.add_argument("--role", choices=ROLES, default="annotator", help="what it may do")
        if name == "role":
            action.add_argument("role", choices=ROLES, help="what it may do from now on")
        if name == "add":
            action.add_argument(
                "--no-password",
                action="store_true",
                help="sign in through the dashboard's identity provider alone, by this name",
            )
        if name in ("add", "password"):
            action.add_argument(
                "--password-stdin",
                action="store_true",
                help="read the password from the first line of standard input, do not ask for it",
            )
        add_json_flag(action)
        action.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do one action on the store."""
    from fedlens.store import open_store

    with open_store(args.store) as store:
        if args.action == "add":
            if args.no_password and args.password_stdin:
                raise WrongUse("--no-password and --password-stdin: give one of them")
            secret = None if args.no_password else _password(args)
            store.add_account(args.name, args.role, secret, actor=ACTOR)
        elif args.action == "role":
            store.set_role(args.name, args.role, actor=ACTOR)
        elif args.action == "password":
            store.set_password(args.name, _password(args), actor=ACTOR)
        elif args.action in ("disable", "enable"):
            store.set_disabled(args.name, args.action == "disable", actor=ACTOR)
        if args.action == "log":
            entries = [vars(one) | {"day": str(one.day)} for one in store.log_entries()]
            for one in entries:
                line = f"{one['day']}  {one['actor']}: {one['action']} {one['subject']}".rstrip()
                say("".join(sign if sign.isprintable() else "?" for sign in line))
            found: dict[str, object] = {"log": entries}
        else:
            accounts = store.accounts()
            for account in accounts:
                say(f"{account.name}  {account.role}{'  disabled' if account.disabled else ''}")
            found = {
                "accounts": [
                    {"name": one.name, "role": one.role, "disabled": one.disabled}
                    for one in accounts
                ]
            }
    if args.json:
        print_json(found)
    return 0


def _password(args: argparse.Namespace) -> str:
    if args.password_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise WrongUse("no terminal to ask for a password on: give --password-stdin")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise WrongUse("the two passwords differ: try again")
    return first
