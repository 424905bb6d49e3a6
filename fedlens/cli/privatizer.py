"""``fedlens privatizer``: what a filter is worth, and filters as files for devices."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_research_verb, given_settings
from fedlens.cli.output import print_json, say, status_of, tell
from fedlens.cli.own_records import add_apply, add_column_flags, add_unsafe_flag, with_columns
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens.foundation.tables import Row
    from fedlens.privatizers.attacks.filter_attack import FilterAttack
    from fedlens.privatizers.attacks.gate import GateReport

TABLE = ("sent", "secret", "interval", "use", "attacker")
COLUMNS = (
    "attacker", "knows", "releases", "records", "reads", "interval", "nats at least", "seconds",
)  # fmt: skip


def add_attack(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The action and its flags."""
    parser = actions.add_parser(
        "attack",
        help="attack a filter from its file alone, by attackers who know it and others who do not",
        description="Does a filter do what its file claims? Looks up its noise, its bound and its "
        "certificate, then attacks it: one that a curve or study kept or a run trained, whose "
        "weights the attackers have as every device does, or an exported .pt2 or .onnx, of which "
        "they see releases alone. Ends with status 0 if it holds, 4 if it falls, 5 if that cannot "
        "be told: no claims, other records, or too few. Simulation only: attackers learn from the "
        "source's raw records, all that are not tested on.",
        epilog="example: fedlens privatizer attack runs/privatizer-alpha/filters/FILE.safetensors "
        "--quick",
    )
    add = parser.add_argument
    add("filter", type=Path, metavar="FILTER", help="file of filters/ of a curve or study, a "
        "run's folder, or an exported .pt2 or .onnx")  # fmt: skip
    add("--data", default="", help="source of records and attribute (default: what the file says "
        "that it was made for)")  # fmt: skip
    add_column_flags(parser)
    add("--releases", nargs="+", type=int, default=[1], metavar="N",
        help="releases of each record that attackers see (default: 1)")  # fmt: skip
    add("--fresh-noise", action="store_true",
        help="each release has noise of its own also where the filter asks devices to repeat it "
        "(what devices without a key release)")  # fmt: skip
    add(
        "--trusted",
        action="store_true",
        help="FILTER is a .pt2 of your own: reading one runs what code its maker put there",
    )
    add("--attackers", nargs="+", default=[], metavar="NAME",
        help="only these, of likelihood, code, decode, residual, features, logistic, trees, same, "
        "wide, formula (computes the attribute where the data has a formula; default: those that "
        "read most)")  # fmt: skip
    add("--records", type=int, metavar="N",
        help="labelled records that attackers have at most (default: all there are)")  # fmt: skip
    add("--seed", type=int, help="of parts, noise and attackers (default: that by which the file "
        "says that the parts were dealt, else 0)")  # fmt: skip
    add("--quick", action="store_true", help="fewer records and steps, for a look")
    add("--data-dir", help="folder of the data sets' files")
    add_json_flag(parser)
    parser.set_defaults(run=run_attack)


def run_attack(args: argparse.Namespace) -> int:
    """Look, attack, print what was found and the verdict."""
    from fedlens.api.attacks import AttackSettings, attack
    from fedlens.privatizers.private_data import PrivateDataError
    from fedlens.privatizers.protocol import PrivatizerError

    data = with_columns(args)
    try:
        asked = AttackSettings(**given_settings(AttackSettings, args))
        found = attack(args.filter, data, asked, tell=tell)
    except (PrivatizerError, PrivateDataError) as error:
        raise WrongUse(str(error)) from None
    _print(found)
    if args.json:
        print_json(found.row())
    return status_of([found.verdict])


def _print(found: GateReport) -> None:
    from fedlens.privatizers.attacks.filter_attack import strongest

    for check in found.checks:
        say(f"{check.verdict}: {check.what}: {check.found}")
    _print_certified(found)
    if found.measured is not None:
        _print_readings(found, found.measured.attacks)
        best = strongest(found.measured.attacks)
        say(
            f"strongest: {best.name} reads {best.balanced:.3f} (balanced accuracy) of the "
            f"sensitive attribute of {found.data}, knows {best.knows}"
        )
        if not any("weights" in one.knows for one in found.measured.attacks):
            say("no attacker here has the filter's weights; devices do: attack the kept file too")
        say("an attack is an estimate from below: a better attacker may come")
        say("simulation only: raw records trained the attackers, no budget was kept")
    say(f"verdict: {str(found.verdict).upper()}")


def _print_certified(found: GateReport) -> None:
    """What nats forbid, of a record, a burst and a person."""
    from fedlens.accountant.wording import shown
    from fedlens.foundation.tables import print_table, table_of
    from fedlens.privatizers.certificate import WORST_DELTA

    if not found.certified:
        return
    rows: list[Row] = [
        {"certified for": one.sent, "nats at most": f"{one.nats:.2f}",
         "secret named at most": "vacuous" if one.secret in (None, 1.0) else f"{one.secret:.0%}",
         "one of 1,000 named at most": "vacuous" if one.person == 1.0 else f"{one.person:.0%}"}
        for one in found.certified
    ]  # fmt: skip
    say()
    print_table(table_of(rows, tuple(rows[0])))
    say("averages over releases; vacuous: forbids nothing")
    for one in found.certified:
        if one.worst is not None:
            say(
                f"no promise for a single one: at worst {one.sent} is told from any other as far "
                f"as ε = {shown(one.worst)} at δ = {WORST_DELTA:g} allows"
            )


def _print_readings(found: GateReport, attacks: Sequence[FilterAttack]) -> None:
    """What is sent and what it tells, then every attacker, the strongest first."""
    from fedlens.foundation.tables import print_table, table_of

    sent = [
        {**row, "secret": f"{row['secret']:.3f}", "interval": _interval(row["low"], row["high"]),
         "use": None if row["use"] is None else f"{row['use']:.3f}"}
        for row in found.table()
    ]  # fmt: skip
    say()
    print_table(table_of(sent, TABLE))
    rows: list[Row] = [
        {
            "attacker": one.name,
            "knows": one.knows,
            "releases": one.releases,
            "records": one.records,
            "reads": f"{one.balanced:.3f}",
            "interval": _interval(one.low, one.high),
            "nats at least": f"{max(one.nats, 0.0):.4f}",
            "seconds": f"{one.seconds:.0f}",
        }
        for one in sorted(attacks, key=lambda one: -one.balanced)
    ]
    say()
    print_table(table_of(rows, COLUMNS))
    say()
    if found.dominated:
        say("DOMINATED: sending the answer alone keeps as much of the use and tells no more")


def _interval(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}"


KINDS = ("torch", "onnx")
CURVE = "a curve of utility against leakage, every point attacked afresh"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "privatizer",
        help=VERBS["privatizer"],
        description="Report on filters that devices run before data leaves them. Simulation only: "
        "trained and measured on raw data, without a budget.",
        epilog="example: fedlens privatizer curve --method alpha --quick",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_research_verb(actions, "curve", CURVE, entry="privatizer-curve")
    _add_export(actions)
    add_apply(actions)
    add_attack(actions)


def _add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = actions.add_parser(
        "export",
        help="a trained filter as a file that devices run",
        description="Export a filter that a curve or study kept or a run trained, its noise an "
        "input of the file. A file that does not do what the filter does is refused.",
        epilog="example: fedlens privatizer export runs/privatizer-alpha/filters/FILE.safetensors",
    )
    add = export.add_argument
    add(
        "filter",
        type=Path,
        metavar="FILTER",
        help="file of filters/ of a curve or study, or a run's folder",
    )
    add("--kind", choices=KINDS, help="torch.export or ONNX (default: as --out ends, else torch)")
    add("--out", type=Path, help="file to write, .pt2 or .onnx (default: beside or in FILTER)")
    add_unsafe_flag(export)
    add_json_flag(export)
    export.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    """Export a kept filter, say what was checked."""
    from fedlens.api.privatizer import export
    from fedlens.privatizers.protocol import PrivatizerError

    try:
        made = export(args.filter, kind=args.kind, out=args.out, unsafe=args.unsafe)
    except PrivatizerError as error:
        raise WrongUse(str(error)) from None
    found = made.to_json()
    say(f"{found['path']}: {found['bytes']} bytes, off by at most {found['difference']:.2g}")
    say(f"{found['latency_ms_p50']:.3f} ms a record (median, one CPU thread)")
    say("noise is an input: a record's own, not to be guessed, the same at each release of it")
    if found["encoder"]:
        say(f"{found['encoder']}: the clean code, for noise that near records share; never send it")
    if found["choices"]:
        say("choice is an input: 1 where the record's owner wants the attribute hidden, else 0")
    if args.json:
        print_json(found)
    return ExitStatus.DONE
