"""``fedlens study bugs``: which faults a diagnosis finds, in how few users, at which ε."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli.flags import add_json_flag, add_seeds_flag, make_out_folder, parse_seeds
from fedlens.cli.output import print_json, print_table, say, step_bars, tell
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens_research.bugs.plan import BugPlan
    from fedlens_research.bugs.trained import Product

OUT = Path("runs") / "study-bugs"
PARTS = ("draws", "runs", "all")
QUESTIONS = ("known", "unknown", "earlier", "foreign")


def add_bugs_parser(tables: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-command and its flags."""
    parser = tables.add_parser(
        "bugs",
        help="which planted faults a diagnosis finds, in how few users, at which ε",
        description="Plant every fault of the library in a growing share of the users, diagnose "
        "what runs would release, thousands of times, and train a few runs to look at their "
        "samples. Goes on where it was stopped. Simulation only.",
        epilog="example: fedlens study bugs --quick",
    )
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="eight faults, three shares, two ε, 1,000 users of the embedded digits, no trained "
        "runs: ten minutes on two cores",
    )
    add(
        "--names",
        action="store_true",
        help="whether names are right: 45 faults that stand in no library beside the library's, in "
        "up to three tenths of the users (the former from a tenth on), natural writers too where "
        "their files are there; prints a table",
    )
    add("--part", choices=PARTS, help="what is measured (default: all, or draws with --quick)")
    add(
        "--question",
        nargs="+",
        choices=QUESTIONS,
        default=[],
        help="of the draws: a fault of the library, one that is in no library, an earlier run as "
        "reference, a reference of another source (default: all)",
    )
    add("--data", nargs="+", metavar="NAME", help="data sets (default: mnist and fashion-mnist)")
    add("--data-dir", help="folder of the data sets' files")
    add("--users", nargs="+", type=int, metavar="N", help="sizes of federations (1000 3000)")
    add("--epsilon", nargs="+", type=float, metavar="EPSILON", help="DP ε of whole schedules")
    add("--faults", nargs="+", metavar="FAULT", help="faults (default: all of the library)")
    add("--draws", type=int, help="diagnoses of each fault, share, ε and seed")
    add_seeds_flag(parser)
    add("--out", type=Path, default=OUT, help=f"folder of the study (default: {OUT})")
    add("--kept", action="store_true", help="measure nothing: write what is in the folder")
    add("--page", type=Path, help="write the page there too, its figures as JSON and CSV beside it")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure what is missing, write results and page."""
    from fedlens_research.bugs.naming import COLUMNS, naming_rows
    from fedlens_research.bugs.study import BugStudy
    from fedlens_research.bugs.trained import TRAINED

    if args.page is not None and args.page.suffix != ".md":
        raise WrongUse(f"--page {args.page}: give a file name that ends in .md")
    part = args.part or ("draws" if args.quick or args.names else "all")
    plan = _plan(args)
    plan.check()
    study = BugStudy(
        plan=plan if part != "runs" else replace(plan, questions=()),
        out=make_out_folder(args.out),
        product=_product(),
        data_dir=str(Path(args.data_dir).absolute()) if args.data_dir else "",
        quick=args.quick,
        trained=TRAINED if part != "draws" else (),
    )
    if not args.kept:
        with step_bars() as bar:
            study.measure(tell, bar)
    made = study.write(args.page)
    if args.names:
        print_table(COLUMNS, naming_rows(study.results()))
    say("simulation only: no budget was kept")
    for path in made:
        say(f"  {path}")
    if args.json:
        print_json(study.results().to_json())
    return ExitStatus.DONE


def _plan(args: argparse.Namespace) -> BugPlan:
    """The plan of the flags; data that is nowhere is left out and told."""
    from fedlens_research.bugs.plan import FULL, NAMES, QUICK, found_data

    plan = NAMES if args.names else QUICK if args.quick else FULL
    plan = replace(plan, seeds=parse_seeds(args.seeds, quick=args.quick))
    if args.draws is not None:
        if args.draws < 1:
            raise WrongUse(f"--draws {args.draws}: give at least 1")
        plan = replace(plan, draws=args.draws)
    plan = replace(
        plan,
        questions=tuple(args.question or plan.questions),
        users=tuple(args.users or plan.users),
        epsilons=tuple(args.epsilon or plan.epsilons),
        faults=tuple(args.faults or plan.faults),
    )
    wanted = tuple(args.data or plan.data)
    if args.kept:
        return replace(plan, data=wanted)
    found = found_data(wanted, args.data_dir or "")
    if found != wanted:
        tell(f"of {', '.join(wanted)} there is {', '.join(found)}: that is measured")
    return replace(plan, data=found)


def _product() -> Product:
    from fedlens.api.diagnoses import diagnose
    from fedlens.api.probes import probe
    from fedlens.api.runs import open_run
    from fedlens.api.simulations import simulate
    from fedlens_research.bugs.trained import Product

    return Product(simulate, diagnose, probe, open_run)
