"""``fedlens rehearse``: what a run over data that no one may see would give, on public pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import given_settings
from fedlens.cli.output import say
from fedlens.cli.simulate import add_run_flags, add_training_flags, chosen_settings, finish

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "rehearse",
        help=VERBS["rehearse"],
        description="Run a schedule on public digits that stand in for data that no one may see: "
        "as many users, records and classes, of the same size, with the same noise. It spends "
        "nothing and shows what samples, students and figures of the run itself may look like. "
        "Digits are no bound: other pictures may do better or worse.",
        epilog="example: fedlens rehearse --users 160 --records 50 --contract federation.toml",
    )
    add = parser.add_argument
    add("--users", type=int, help="people, or silos in record mode (data.users)")
    add("--records", type=int, default=10, help="records of each of them (default: %(default)s)")
    add("--contract", type=Path, help="the federation's contract, for size, colour and classes")
    add("--side", type=int, default=28, help="pixels of a side (default: %(default)s)")
    add("--colour", action="store_true", help="three channels")
    add("--classes", type=int, default=10, help="number of classes (default: %(default)s)")
    add_run_flags(parser)
    add_training_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train on stand-ins, sum up, print."""
    from fedlens.api.simulations import SimulationSettings, prepare

    given = given_settings(SimulationSettings, args)
    settings = {**chosen_settings(args), **_stand_in(args)}
    config = SimulationSettings(**{**given, "settings": settings}).configuration()
    directory, _ = prepare(config, "rehearsal", out=args.out, overwrite=args.overwrite)
    say(f"REHEARSAL on public digits ({config.data.name}): it touches nobody's data")
    say("digits are easy: it shows time and mechanics, and does not foretell a student's accuracy")
    return finish(args, config, directory)


def _stand_in(args: argparse.Namespace) -> dict[str, object]:
    """Settings of the data: what stands in, and how many hold it."""
    from fedlens.client.contract import read_contract
    from fedlens.data.stand_in import stand_in_name
    from fedlens.foundation.errors import WrongUse
    from fedlens.foundation.unlabelled import NONE, PARTLY

    for name in ("users", "records"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise WrongUse(f"--{name} {getattr(args, name)}: give at least 1")
    config = _asked(args)
    agreed: dict[str, object] = {}
    side, channels, classes = args.side, 3 if args.colour else 1, args.classes
    if args.contract is not None:
        contract = read_contract(args.contract)
        (channels, side, _), classes = contract.shape, len(contract.classes)
        agreed = {"privacy.unit": contract.unit, "data.records_per_user": contract.records_per_user}
        agreed |= {"data.labels": contract.labels} if contract.labels in (NONE, PARTLY) else {}
        config = config.updated(agreed)
    users = config.data.users if args.users is None else args.users
    record_mode = config.privacy.unit == "record"
    records = users * (config.data.records_per_node if record_mode else args.records)
    return {
        "data.name": stand_in_name(side, channels, classes, records),
        "data.users": users,
        "data.scheme": "iid",
        "data.samples_per_user": 0,
        **agreed,
    }


def _asked(args: argparse.Namespace) -> Config:
    from fedlens.api.simulations import chosen_config

    return chosen_config(args.preset, config=args.config, settings=chosen_settings(args))
