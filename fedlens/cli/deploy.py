"""``fedlens deploy``: a federation on real machines, from its certificates to its runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, select_flags
from fedlens.cli.output import print_json, program, say
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens.deploy.initialise import FederationPlan

READY_SECONDS = 120.0
FOLDER = "folder of a machine, as `fedlens deploy init` wrote it"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "deploy",
        help=VERBS["deploy"],
        description="Set up a federation of one SuperLink and its nodes, over TLS with keys for "
        "nodes and tokens for operators; start it, check it, run over it.",
        epilog="example: fedlens deploy init federation --nodes 3",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_init(actions)
    _add_start(actions)
    _add_run(actions)
    _add_looks(actions)
    _add_keys(actions)


def _add_init(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "init",
        help="write a new federation: a folder for each machine",
        description="Write certificates, keys, tokens, settings, start scripts, systemd units, "
        "container and Kubernetes files. Each machine gets its own folder and no other.",
        epilog="example: fedlens deploy init federation --nodes 3 --name superlink.example.org",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="FEDERATION", help="a new folder")
    add("--nodes", default="3", help="how many, or their names with commas (default: 3)")
    add(
        "--name",
        action="append",
        default=[],
        dest="names",
        help="host name or address by which nodes reach the SuperLink; may be repeated "
        "(default: localhost)",
    )
    add("--host", default="127.0.0.1", help="address that it listens on (default: 127.0.0.1)")
    add("--port", type=int, default=9443, help="its port (default: 9443)")
    add("--operator", action="append", default=[], dest="operators", help="name of an operator")
    add("--contract", type=Path, help="the owners' federation.toml, for every machine")
    add(
        "--certificate",
        nargs=3,
        type=Path,
        metavar=("CA", "CERT", "KEY"),
        help="your organisation's own, PEM, in place of new ones",
    )
    add(
        "--public-key",
        action="append",
        default=[],
        metavar="NODE=FILE",
        help="a node's own public key (OpenSSH), so that its private one never leaves it",
    )
    parser.set_defaults(run=_init)


def _init(args: argparse.Namespace) -> int:
    from fedlens.deploy.initialise import initialise

    plan = _plan(args)
    initialise(args.folder, plan)
    uses = {"superlink": "for the SuperLink's machine"}
    uses |= {f"nodes/{name}": f"for the machine of {name}, and no other" for name in plan.nodes}
    uses |= {f"operators/{name}": f"for {name}, who starts runs" for name in plan.operators}
    if plan.given is None:
        uses["authority"] = "signs certificates: keep it off these machines"
    for made, use in uses.items():
        say(f"{args.folder}/{made:<{max(map(len, uses))}}   {use}")
    say(f"next:  {program()} deploy start {args.folder}/superlink")
    return ExitStatus.DONE


def _plan(args: argparse.Namespace) -> FederationPlan:
    from fedlens.deploy.initialise import FederationPlan

    if args.nodes.isdecimal():
        nodes = tuple(f"node-{number}" for number in range(1, int(args.nodes) + 1))
    else:
        nodes = tuple(word.strip() for word in args.nodes.split(","))
    keys = dict(_pair(text) for text in args.public_key)
    return FederationPlan(
        nodes=nodes,
        host=args.host,
        port=args.port,
        names=tuple(args.names) or ("localhost",),
        operators=tuple(args.operators) or ("operator",),
        given=tuple(args.certificate) if args.certificate else None,
        contract=args.contract,
        public_keys=keys,
    )


def _pair(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals:
        raise WrongUse(f"--public-key {text!r}: write NODE=FILE")
    return name, Path(path)


def _add_start(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    start = actions.add_parser(
        "start",
        help="run what a folder is for, and start it again when it ends",
        description="Run a SuperLink or a node until it is stopped. A process that ends is started "
        "again after a pause that grows to 15 seconds.",
        epilog="example: fedlens deploy start federation/superlink --background",
    )
    start.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=FOLDER)
    start.add_argument(
        "--background", action="store_true", help="return when it is ready; `deploy stop` ends it"
    )
    start.set_defaults(run=_start)
    stop = actions.add_parser(
        "stop",
        help="end what `deploy start --background` started",
        epilog="example: fedlens deploy stop federation/superlink",
    )
    stop.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=FOLDER)
    stop.set_defaults(run=_stop)


def _start(args: argparse.Namespace) -> int:
    from fedlens.deploy.background import start_in_background, wait_until_ready
    from fedlens.deploy.checking import require_startable, still_lacking
    from fedlens.deploy.services import become_service

    for folder in args.folders:
        require_startable(folder)
    os.umask(0o077)
    if not args.background:
        if len(args.folders) > 1:
            raise WrongUse("several folders are started with --background, each with its own log")
        become_service(args.folders[0])
    started = [(folder, start_in_background(folder)) for folder in args.folders]
    for folder, process in started:
        log = wait_until_ready(folder, process, still_lacking, READY_SECONDS)
        say(f"{folder} is ready; its log is {log}", at_once=True)
    return ExitStatus.DONE


def _stop(args: argparse.Namespace) -> int:
    from fedlens.deploy.background import stop_in_background
    from fedlens.deploy.layout import OperatorSettings, read_folder, wipe_state

    for folder in args.folders:
        settings = read_folder(folder, floor=False)
        stopped = stop_in_background(folder)
        if not isinstance(settings, OperatorSettings):
            wipe_state(folder, settings.state)
        say(f"{folder} {'was stopped' if stopped else 'was not running'}")
    return ExitStatus.DONE


def _add_run(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from fedlens.api.presets import preset_names

    parser = actions.add_parser(
        "run",
        help="train over the federation",
        description="Start a run as an operator and follow its log to the end. Only settings "
        "travel; every node runs the fedlens that is installed there.",
        epilog="example: fedlens deploy run federation/operators/operator --preset demo "
        "--set data.users=300 --set data.nodes=3 --name first",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder of an operator")
    add("--preset", default="demo", help=f"one of {', '.join(preset_names())}")
    add("--config", type=Path, help="TOML file of settings, over the preset")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="one setting",
    )
    add("--epsilon", type=float, help="scale the noise of all tasks so that the run has this DP ε")
    add("--delta", type=float, help="δ of --epsilon, and privacy.delta of the run from then on")
    add("--name", default="", help="name of the run's folder; one that is there goes on")
    add("--only-copy", action="store_true", help="the run's folder was moved and is the only one")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from fedlens.api.simulations import chosen_config
    from fedlens.deploy.submitting import submit
    from fedlens.server.config.loading import parse_setting

    os.umask(0o077)
    settings = dict(parse_setting(text) for text in args.settings)
    given = select_flags(args, "preset", "config", "epsilon", "delta")
    config = chosen_config(**given, settings=settings)
    done = submit(args.folder, config, name=args.name, resume=args.only_copy)
    stopped = done.get("stopped")
    say(f"the run is {done['status']}" if stopped is None else f"stopped by the budget: {stopped}")
    if args.json:
        print_json(done)
    return ExitStatus.DONE if stopped is None else ExitStatus.OUT_OF_BUDGET


def _add_looks(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = actions.add_parser(
        "check",
        help="say what is wrong with a folder's machine, with the fix",
        description="Certificates, clock, ports, disk, versions, permissions, data: one line each.",
        epilog="example: fedlens deploy check federation/superlink",
    )
    check.add_argument("folder", type=Path, metavar="FOLDER", help=FOLDER)
    add_json_flag(check)
    check.set_defaults(run=_check)
    status = actions.add_parser(
        "status",
        help="how the federation and its runs go",
        description="Nodes and their state; every run's round, both ε, nodes that answered, were "
        "missing or refused and why, and where its output is.",
        epilog="example: fedlens deploy status federation/superlink",
    )
    status.add_argument(
        "folder", type=Path, metavar="FOLDER", help="of the SuperLink or an operator"
    )
    add_json_flag(status)
    status.set_defaults(run=_status)


def _check(args: argparse.Namespace) -> int:
    from fedlens.deploy.checking import check_folder

    problems = check_folder(args.folder)
    for line in problems:
        say(line)
    if not problems:
        say(f"{args.folder}: nothing is wrong")
    if args.json:
        print_json({"problems": problems})
    return ExitStatus.FAILED if problems else ExitStatus.DONE


def _status(args: argparse.Namespace) -> int:
    from fedlens.deploy.status import UP, federation_status, status_lines

    found = federation_status(args.folder)
    for line in status_lines(found):
        say(line)
    if args.json:
        print_json(found)
    return ExitStatus.DONE if found["superlink"] == UP else ExitStatus.FAILED


def _add_keys(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    renew = actions.add_parser(
        "renew",
        help="a new certificate for the SuperLink",
        epilog="example: fedlens deploy renew federation --name superlink.example.org",
    )
    renew.add_argument("folder", type=Path, metavar="FEDERATION", help="with its authority")
    renew.add_argument("--name", action="append", default=[], dest="names", help="as for init")
    renew.set_defaults(run=_renew)
    operator = actions.add_parser(
        "operator",
        help="one more operator, with a token of their own",
        epilog="example: fedlens deploy operator federation alice",
    )
    operator.add_argument("folder", type=Path, metavar="FEDERATION", help="as init wrote it")
    operator.add_argument("name", help="the operator's name")
    operator.set_defaults(run=_operator)
    code = actions.add_parser(
        "code",
        help="the hash of the fedlens that is installed here",
        description="What code-sha256 in a node's deploy.toml is compared with.",
        epilog="example: fedlens deploy code",
    )
    code.set_defaults(run=_code)


def _renew(args: argparse.Namespace) -> int:
    from fedlens.deploy.initialise import renew
    from fedlens.deploy.layout import SuperLinkSettings, read_role

    settings: SuperLinkSettings = read_role(args.folder / "superlink", SuperLinkSettings)
    renewed = renew(args.folder, tuple(args.names) or settings.names)
    say(f"{args.folder}/superlink has a new certificate: start it again there")
    if renewed:
        say("the authority's own was about to expire and is new too: put it into place")
    for path in renewed:
        say(f"{path}   on the machine of {path.parent.name}")
    return ExitStatus.DONE


def _operator(args: argparse.Namespace) -> int:
    from fedlens.deploy.initialise import add_operator

    say(f"{add_operator(args.folder, args.name)} is for {args.name}, and no other")
    return ExitStatus.DONE


def _code(args: argparse.Namespace) -> int:
    from fedlens.foundation.code_digest import code_sha256

    say(code_sha256())
    return ExitStatus.DONE
