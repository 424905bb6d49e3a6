"""``fedlens probe``: ask all users one bounded number, and see what it says and costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.accountant.wording import percentage
from fedlens.api.simulations import TRANSPORTS
from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import figure, print_json, print_table, round_bar, say
from fedlens.foundation.errors import ExitStatus

if TYPE_CHECKING:
    from fedlens.accountant.probing import ProbePrice
    from fedlens.api.probes import ProbeAnswer


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "probe",
        help=VERBS["probe"],
        description="Ask every user of a run one bounded number. Nodes compute it; their noised "
        "sum is entered in the ledger before it is released. --price says beforehand what it "
        "costs and how near the answer will be; --list names the probes there are.",
        epilog="example: fedlens probe runs/demo --probe better_after:rotate270 --epsilon 0.3 "
        "--delta 1e-6",
    )
    add = parser.add_argument
    add(
        "run_dir",
        type=Path,
        metavar="RUN_DIR|CONFIG",
        nargs="?",
        help="directory of the run whose users are asked, or TOML file of settings",
    )
    add("--probe", metavar="NAME[:ARGUMENT]", help="the question")
    add("--epsilon", type=float, help="DP ε that it may cost by itself")
    add("--delta", type=float, help="its δ (default: the run's)")
    add("--model", type=Path, metavar="RUN_DIR", help="run whose annotator is asked")
    add("--price", action="store_true", help="say what it costs, and ask nothing")
    add("--list", action="store_true", help="name the probes there are")
    add("--out", type=Path, help="directory of the probe (default: beside the run, numbered)")
    add("--transport", choices=TRANSPORTS, default="in-process", help="how messages travel")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, price or ask."""
    from fedlens.api.probes import probe, probe_price
    from fedlens.foundation.errors import WrongUse

    if args.list:
        return _list(args)
    given = {"RUN_DIR": args.run_dir, "--probe": args.probe, "--epsilon": args.epsilon}
    if missing := [name for name, value in given.items() if value in (None, "")]:
        raise WrongUse(
            f"{' and '.join(missing)}: nothing is given; write fedlens probe RUN_DIR --probe NAME "
            "--epsilon 0.3, or fedlens probe --list"
        )
    subject = _subject(args.run_dir)
    asked = {"epsilon": args.epsilon, "delta": args.delta}
    if args.price:
        price = probe_price(subject, args.probe, **asked, model=args.model)
        _print_price(price)
        if args.json:
            print_json(price.to_json())
        refused = price.refusal or price.waits
        return ExitStatus.OUT_OF_BUDGET if refused else ExitStatus.DONE
    with round_bar() as observer:
        found = probe(
            subject,
            args.probe,
            **asked,
            model=args.model,
            out=args.out,
            transport=args.transport,
            progress=observer,
        )
    if args.json:
        print_json(found.to_json())
    else:
        _print(found)
    return ExitStatus.DONE


def _subject(path: Path):  # type: ignore[no-untyped-def]
    from fedlens.server.config.loading import read_config

    return read_config(path) if path.is_file() else path


def _list(args: argparse.Namespace) -> int:
    from fedlens.models.probes import PROBES

    rows = [(name, PROBES[name]) for name in PROBES]
    if args.json:
        print_json({"probes": [{"name": name, "says": one.says} for name, one in rows]})
        return ExitStatus.DONE
    print_table(
        ("probe", "takes", "asks a network", "what it says"),
        [
            (name, one.takes, "yes" if one.needs_model else "no", one.says.format("…"))
            for name, one in rows
        ],
    )
    return ExitStatus.DONE


def _print_price(price: ProbePrice) -> None:
    say(
        f"costs DP ε = {figure(price.epsilon)} at δ = {price.delta:g} by itself; Bayesian DP "
        f"ε ≤ {figure(price.bayesian_epsilon)} at δ = {price.bayesian_delta:g}"
    )
    say(
        f"together with what was spent: DP ε = {figure(price.together)} at δ = {price.delta:g} "
        f"(before: {figure(price.spent)}), if neither this probe nor a run before it was chosen by "
        "what another one released"
    )
    _print_filter(price)
    if price.probe_limit is not None:
        say(
            f"probes may cost ε = {price.probe_limit:g} in all; spent "
            f"{figure(price.spent_on_probes)}"
        )
    say(
        f"tells a share of {price.users} users to ±{100 * price.half_width:.2g} points in 95 of "
        "100 answers"
    )
    if price.refusal:
        say(f"REFUSED: {price.refusal}")
    elif price.waits:
        say(f"WAITS: {price.waits}")


def _print_filter(price: ProbePrice) -> None:
    """What holds of probes that are chosen by what was released, as most are."""
    if price.budget is None or price.used is None or price.used_after is None:
        say(
            "name a population in the run's settings for a bound that holds of any choice of probes"
        )
        return
    say(
        f"the population's budget, DP ε ≤ {price.budget:g} and so Bayesian DP ε, holds however "
        f"probes are chosen: the probe takes what is used of it from {percentage(price.used)} to "
        f"{percentage(price.used_after)}"
    )


def _print(found: ProbeAnswer) -> None:
    say(f"{found.probe}: {found.says}")
    say(f"  answer       {found.value:.4g}, 95% interval {found.low:.4g} to {found.high:.4g}")
    say(
        f"               {found.wider_low:.4g} to {found.wider_high:.4g} for those whom these "
        f"{found.users} users were drawn from"
    )
    say(f"  DP           ε = {figure(found.epsilon)} at δ = {found.delta:g} by itself")
    say(
        f"  Bayesian DP  ε = {figure(found.bayesian_epsilon)} at δ = {found.bayesian_delta:g} "
        "(estimate)"
    )
    say(
        f"  together     ε = {figure(found.together)} at δ = {found.delta:g} with what was spent "
        "before, if none of it was chosen by what another one released"
    )
    say(f"  ledger       {found.run_dir}")
