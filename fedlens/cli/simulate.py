"""``fedlens simulate``: train a run on simulated users."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from fedlens.api.presets import preset_names
from fedlens.api.simulations import TRANSPORTS, SimulationSettings, prepare, train
from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, given_settings, select_flags
from fedlens.cli.output import figure, print_json, program, round_bar, say
from fedlens.cli.profile import show_profile
from fedlens.foundation.errors import ExitStatus
from fedlens.foundation.names import call_class
from fedlens.foundation.profile import profiled
from fedlens.store.worth import figure_of

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config
    from fedlens.server.run.directory import RunDirectory
    from fedlens.simulations.engine import Summary


WORTH = {
    "clear": "CLEAR: they show what was asked for (fidelity {:.2f})",
    "usable for statistics": "USABLE FOR STATISTICS: trust sums over many, not a single one "
    "(fidelity {:.2f})",
    "noise": "NOISE: they say nothing about the data; do not label them (fidelity {:.2f})",
}
"""Verdicts in words, with the figure of fidelity."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "simulate",
        help=VERBS["simulate"],
        description="Train a generator on simulated users' data and show what came out.",
        epilog="example: fedlens simulate --preset demo --set data.users=500 --out runs/small\n\n"
        + _settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_flags(parser)
    parser.add_argument("--data-dir", help="folder of the data set's files (data.dir)")
    add_training_flags(parser)
    parser.set_defaults(run=run)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """What a new run is made of and where it goes; ``simulate`` and ``rehearse`` share them."""
    add = parser.add_argument
    add("--preset", default="demo", help=f"one of {', '.join(preset_names())}")
    add("--config", type=Path, help="TOML file of settings, over the preset")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="one setting, over both; may be repeated",
    )
    add(
        "--fault",
        action="append",
        default=[],
        metavar="NAME:SHARE",
        help="plant a fault in a share of the users, such as rotate90:0.3; may be repeated "
        "(data.fault)",
    )
    add(
        "--epsilon",
        type=float,
        help="scale the noise of all tasks by one factor, so that the whole run has this DP ε",
    )
    add("--delta", type=float, help="δ of --epsilon, and privacy.delta of the run from then on")
    add("--out", type=Path, help="run directory (default: runs/PRESET, numbered)")
    add(
        "--overwrite",
        action="store_true",
        help="rename a run that is in --out to make room for this one",
    )
    add("--store", default="", help="URL of the store (default: in the directory)")


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that ``simulate`` and ``resume`` share."""
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default="in-process", help="how messages travel"
    )
    parser.add_argument(
        "--no-student", action="store_false", dest="student", help="do not train a student"
    )
    parser.add_argument(
        "--profile", action="store_true", help="say where the time went, and keep it in the run"
    )
    add_json_flag(parser)


def _settings_help() -> str:
    from fedlens.server.config.reference import tables

    lines = []
    for table in tables():
        lines += [f"  {table.title}"] if table.title else []
        lines += [f"  {setting.key} = {setting.default!r}" for setting in table.settings]
    return "settings and their defaults (the reference says what they mean):\n" + "\n".join(lines)


def config_of(args: argparse.Namespace) -> Config:
    """The configuration that the flags ask for."""
    given = given_settings(SimulationSettings, args)
    return SimulationSettings(**{**given, "settings": chosen_settings(args)}).configuration()


def chosen_settings(args: argparse.Namespace) -> dict[str, object]:
    """Single settings by key, those of ``--set`` and of ``--fault``."""
    from fedlens.server.config.loading import parse_setting

    settings = dict(parse_setting(text) for text in args.settings)
    if args.fault:
        settings["data.fault"] = " ".join(args.fault)
    return settings


def run(args: argparse.Namespace) -> int:
    """Train, sum up, print."""
    config = config_of(args)
    directory, kept = prepare(config, args.preset, out=args.out, overwrite=args.overwrite)
    if kept is not None:
        say(f"the run that was there is in {kept}; what it spent still counts for its users")
    return finish(args, config, directory)


def finish(args: argparse.Namespace, config: Config, directory: RunDirectory) -> int:
    """Train or go on, print the summary, and give the exit status; shared with ``resume``."""
    from fedlens.simulations.engine import describe_labels, describe_noise, what_to_expect

    for words in (describe_noise(config), describe_labels(config), what_to_expect(config)):
        if words:
            say(words)
    with round_bar() as observer, profiled() as profile:
        asked = SimulationSettings(**select_flags(args, "store", "transport", "student"))
        made = train(config, directory, asked, observer)
    summary = made.summary
    if args.profile:
        show_profile(profile, directory)
    _print(summary, "filtered real" if config.privatizer.active else "real")
    budget = config.privatizer.nats_to_leave
    if (summary.sensitive_read_nats or 0) > budget:
        say(
            f"the filter left more of the attribute than privatizer.budget = {budget:g} nats: more "
            "privatizer.steps may hide more"
        )
    if config.privacy.population:
        _print_population(config)
    if args.json:
        print_json(summary.to_json())
    return ExitStatus.OUT_OF_BUDGET if summary.stopped else ExitStatus.DONE


def _print(summary: Summary, tests: str) -> None:
    epsilon, delta = summary.epsilon, summary.delta
    say(
        f"run {summary.run_id} in {summary.run_dir}: {summary.rounds} rounds, "
        f"{summary.users} {summary.unit}"
    )
    if summary.stopped:
        say(f"stopped by the budget: {summary.stopped}")
    if not summary.rounds:
        return
    if not summary.whole:
        say(f"  NOT EVERYONE    {summary.covered}")
    _print_samples(summary)
    if summary.plots is not None:
        say(f"  plots           {summary.plots}")
    say(f"  store           {summary.store}")
    if not summary.private:
        say("  guarantee       none; the figures below protect no user")
    say(
        f"  DP              ε = {figure(epsilon['dp'])} at δ = {delta['dp']:g}, "
        f"{figure(epsilon['dp_at_bayesian_delta'])} at δ = {delta['bdp']:g}"
    )
    say(
        f"  Bayesian DP     ε = {figure(epsilon['bdp_sound'])} (sound), "
        f"{figure(epsilon['bdp_corrected'])} (corrected), "
        f"{figure(epsilon['bdp_as_published'])} (as published) at δ = {delta['bdp']:g}"
    )
    _print_students(summary, tests)
    if summary.sensitive_read is not None:
        say(
            f"  sensitive       a fresh network reads it of {summary.sensitive_read:.1%} of "
            f"filtered samples ({summary.sensitive_read_nats:.2g} nats) with the output noise that "
            "the filter was fitted with; what is left in real images is for attackers to say"
        )
    say()
    say(summary.statement)
    say()
    say(f"Look at it:  {program()} dashboard {summary.run_dir}")


def _print_samples(summary: Summary) -> None:
    if summary.fidelity:
        say(f"  samples         {WORTH[summary.worth].format(figure_of(summary.fidelity))}")
    if summary.planted:
        say(f"  PLANTED FAULT   {summary.planted} (simulation only)")
    if summary.contact_sheet is not None:
        say(f"  contact sheet   {summary.contact_sheet} (curated: to label and to teach with)")
    if summary.faithful_sheet is not None:
        say(f"  faithful sheet  {summary.faithful_sheet} (to look for faults in)")
    if summary.rejected:
        mean = fmean(summary.rejected.values())
        worst = max(summary.rejected, key=lambda name: summary.rejected[name])
        say(
            f"  rejected        {mean:.0%} of the candidates for curated samples, "
            f"most of {call_class(int(worst), summary.class_names)} "
            f"({summary.rejected[worst]:.0%})"
        )


def _print_students(summary: Summary, tests: str) -> None:
    own, best = summary.own_label_accuracy, summary.student_accuracy
    if own is None or best is None:
        return
    taught = best != own
    if taught:
        say(f"  student         {best:.1%} of {tests} test images right, by the annotator's labels")
    label = "with own labels" if taught else "student        "
    say(f"  {label} {own:.1%} of {tests} test images right, trained on synthetic ones")
    say("                  (students are simulation only: real test images are in no budget)")


def _print_population(config: Config) -> None:
    from fedlens.accountant.ledger.population import Population
    from fedlens.server.ledger.population import population_folder

    population = Population.read(population_folder(config.privacy.population))
    terms, spent = population.terms, population.spent()
    say(
        f"Population {terms.population}, over all its runs: {population.percent_spent()} of its "
        f"budget used, DP ε ≤ {terms.epsilon_budget:g} and so Bayesian DP ε, at δ = "
        f"{terms.delta:g}, however runs are chosen (ε = {figure(spent.epsilon)} so far, if none "
        "was chosen by another's releases)"
    )
