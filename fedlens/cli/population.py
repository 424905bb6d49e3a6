"""``fedlens population``: a privacy budget that several runs share."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import figure, print_json, print_table, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.accountant.events import Sampler
    from fedlens.accountant.ledger.population import Population, PopulationTerms

EXAMPLES = ((1.0, 14.2), (0.1, 1.0), (0.02, 2.306))
"""Rates and noise of the rounds of presets demo, wgan and mnist-users-wgan."""
NAME_HELP = "name under $FEDLENS_HOME/populations, or an absolute path"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "population",
        help=VERBS["population"],
        description="A population has one budget for all runs that name it. Every round of such a "
        "run is entered in the population's chained ledger before anything is released. The budget "
        "holds however runs and probes are chosen by what earlier ones released: a privacy filter "
        "admits rounds, at a Rényi order that is fixed here.",
        epilog="example: fedlens population create clinic --epsilon 8 --delta 1e-5 --unit user",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, run in (
        ("create", "fix a population's unit, δ and budget, once and for all", create_population),
        ("show", "what all its runs have spent, and what is left", show_population),
        ("verify", "check the chain of hashes of its ledger", verify_population),
    ):
        description = about[0].upper() + about[1:] + "."
        terms = " --epsilon 8 --delta 1e-5 --unit user" * (run is create_population)
        example = f"example: fedlens population {name} clinic{terms}"
        action = actions.add_parser(name, help=about, description=description, epilog=example)
        action.add_argument("name", metavar="NAME", help=NAME_HELP)
        if run is create_population:
            _add_terms(action)
        add_json_flag(action)
        action.set_defaults(run=run)
    _add_registry_actions(actions)


def _add_registry_actions(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    listed = actions.add_parser(
        "members",
        help="which nodes and users its runs have had, since when, and who is revoked",
        description="List the registry: nodes by position; users by keyed numbers, never names, "
        "where nodes tell them.",
        epilog="example: fedlens population members clinic --node 2",
    )
    listed.add_argument("name", metavar="NAME", help=NAME_HELP)
    listed.add_argument("--node", type=int, help="list the users of this node one by one")
    add_json_flag(listed)
    listed.set_defaults(run=list_members)
    revoked = actions.add_parser(
        "revoke",
        help="let a user or a node take part in nothing any more, from the next round on",
        description="Revoke a user or a node. What was released before stays released and spent; "
        "from its next round on, each run leaves them out.",
        epilog="example: fedlens population revoke clinic --user 4611686018427387904",
    )
    revoked.add_argument("name", metavar="NAME", help=NAME_HELP)
    which = revoked.add_mutually_exclusive_group(required=True)
    which.add_argument("--user", type=int, metavar="NUMBER", help="keyed number, at every node")
    which.add_argument("--node", type=int, metavar="POSITION", help="partition-id of a node")
    revoked.add_argument("--undo", action="store_true", help="let them take part again")
    add_json_flag(revoked)
    revoked.set_defaults(run=revoke_member)


def _add_terms(action: argparse.ArgumentParser) -> None:
    from typing import get_args

    from fedlens.accountant.events import Unit

    add = action.add_argument
    add("--epsilon", type=float, required=True, help="most that DP ε may come to over all runs")
    add("--delta", type=float, required=True, help="δ of that ε; its runs must have the same")
    add("--unit", choices=get_args(Unit), required=True, help="whose presence is hidden")
    add("--users", type=int, default=0, help="how many users are in it; runs enrol no more")
    add(
        "--probe-epsilon",
        type=float,
        default=0.0,
        help="most that DP ε of all probes together may come to (default: the budget)",
    )
    add(
        "--slices",
        default="",
        metavar="ATTRIBUTE",
        help="public attribute of which every user keeps one value, such as app_version: runs on "
        "its slices compose in parallel",
    )
    add(
        "--order",
        type=float,
        default=0.0,
        help="Rényi order of the filter, above 1 (default: nearly the best for releases of all "
        "users; lower pays for more rounds of small cohorts with little noise)",
    )


def create_population(args: argparse.Namespace) -> int:
    """Make a population."""
    from fedlens.accountant.ledger.population import Population, PopulationError, PopulationTerms

    folder = _folder(args.name)
    try:
        terms = PopulationTerms(
            folder.name,
            args.unit,
            args.delta,
            args.epsilon,
            users=args.users,
            probe_epsilon=args.probe_epsilon,
            slices=args.slices,
            order=args.order,
        )
    except PopulationError as error:
        raise WrongUse(str(error)) from None
    population = Population.create(folder, terms)
    say(
        f"{folder}: {_guarantee(terms)}, {args.unit} level, over all runs, however each is chosen "
        "by the releases of earlier ones"
    )
    say(f"a filter of Rényi order {terms.order:g} admits rounds, until its budget is used:")
    _print_worth(terms)
    say(f"name it in a run's settings: --set privacy.population={args.name}")
    if args.json:
        print_json({"folder": str(folder), **population.ledger.header})
    return 0


def show_population(args: argparse.Namespace) -> int:
    """Print what was spent, run by run."""
    population = _read(args.name)
    terms, spent = population.terms, population.spent()
    say(
        f"population {terms.population}: {terms.unit} level, {terms.adjacency}, δ = {terms.delta:g}"
    )
    for share in population.shares():
        unused = f", {share.grants - share.rounds} granted anew" * (share.grants > share.rounds)
        say(
            f"  run {share.run}  {share.rounds} rounds{unused}, last {share.last}  "
            f"alone ε = {figure(share.alone.epsilon)}"
        )
    say(
        f"used      {population.percent_spent()} of the budget in {len(population.ledger)} grants, "
        f"at order {terms.order:g} of its filter: this alone decides what is granted"
    )
    say(f"budget    {_guarantee(terms)}, however each run was chosen by earlier releases")
    say(
        f"spent     DP ε = {figure(spent.epsilon)} so far, if no run's settings were chosen by "
        "what another one released"
    )
    if terms.slices:
        say(
            f"slices    by {terms.slices}: what was used and spent is that of the users of the "
            "most expensive slice"
        )
    for side, count in _sides(population).items():
        split, _, which = side.rpartition("=")
        say(f"{split[:18]}, side {which!r}: {count} rounds; those that both sides had count once")
    if terms.probe_epsilon:
        probes = population.spent_on_probes().epsilon
        say(
            f"probes    DP ε = {figure(probes)} of {terms.probe_epsilon:g}, however they are "
            "chosen (each counts as if everybody had answered)"
        )
    rounds = _rounds_left(population)
    if rounds is not None:
        say(f"enough for {rounds} more rounds like the last")
    if args.json:
        print_json(_record(population))
    return 0


def verify_population(args: argparse.Namespace) -> int:
    """Check the chain; a ledger that was changed fails with the line at fault."""
    ledger = _read(args.name).ledger
    say(f"the population's ledger holds: {len(ledger)} grants, head {ledger.head[:16]}")
    if args.json:
        print_json({"verified": True, "entries": len(ledger), "head": ledger.head})
    return 0


def list_members(args: argparse.Namespace) -> int:
    """List nodes, and the users of one."""
    from fedlens.store import open_store

    identity, url = _registry(args.name)
    with open_store(url) as store:
        nodes, people = store.member_nodes(identity), store.members(identity, args.node)
    if args.node is not None and args.node not in (known := [node.node for node in nodes]):
        there = ", ".join(map(str, known)) or "none"
        raise WrongUse(f"--node {args.node}: the population knows no such node; there are: {there}")
    for node in nodes:
        gone = f", revoked {node.revoked}" if node.revoked else ""
        say(f"node {node.node:4d}  {node.users:8,} users  {node.since} to {node.seen}{gone}")
    here = [person for person in people if person.until is None]
    say(
        f"{len({person.number for person in here}):,} users with a number are enrolled, "
        f"{sum(person.revoked is not None for person in here):,} of these entries are revoked"
    )
    for person in people if args.node is not None else ():
        left = f", left {person.until}" if person.until else ""
        gone = f", revoked {person.revoked}" if person.revoked else ""
        say(f"  user {person.number:019d}  since {person.since}{left}{gone}")
    if args.json:
        shown = people if args.node is not None else []
        print_json({"nodes": [_dated(n) for n in nodes], "users": [_dated(p) for p in shown]})
    return 0


def revoke_member(args: argparse.Namespace) -> int:
    """Revoke somebody, or take that back."""
    from fedlens.store import open_store

    identity, url = _registry(args.name)
    with open_store(url) as store:
        here = store.set_revoked(identity, number=args.user, node=args.node, on=not args.undo)
    named = f"user {args.user:019d}" if args.node is None else f"node {args.node}"
    if args.undo:
        say(f"{named} takes part again, from the next round of each run on")
    else:
        say(f"{named} is revoked: runs leave it out from their next round on")
        say("what was released before cannot be called back, and stays in the budget")
        if not here:
            say(
                "no node names this user now. Where a node has another members-key-file since, the "
                "same person has another number there and is still drawn: give the node its key "
                "back, or revoke that number (fedlens population members NAME --node POSITION)"
            )
    if args.json:
        told = {"user": args.user, "node": args.node, "revoked": not args.undo, "enrolled": here}
        print_json(told)
    return 0


def _registry(name: str) -> tuple[str, str]:
    """A population's identity, and the URL of its registry.

    Raises:
        WrongUse: no run has enrolled anybody yet.
    """
    from fedlens.server.ledger.population import registry_url

    population, url = _read(name), registry_url(name)
    if not Path(url.removeprefix("sqlite:///")).exists():
        raise WrongUse(
            f"population {name!r} has no registry yet: its first run enters the nodes that it finds"
        )
    return population.identity, url


def _dated(record: object) -> dict[str, Any]:
    """A record of the registry as JSON values."""
    values = {key: value for key, value in vars(record).items() if key != "population"}
    return {k: v if v is None or isinstance(v, int) else str(v) for k, v in values.items()}


def _folder(name: str) -> Path:
    from fedlens.server.config.tree import POPULATION_NAME
    from fedlens.server.ledger.population import population_folder

    if not POPULATION_NAME.fullmatch(name):
        raise WrongUse(
            f"NAME {name!r} cannot be used: letters, digits, '.', '_', '-', or an absolute path"
        )
    return population_folder(name)


def _read(name: str) -> Population:
    from fedlens.accountant.ledger.population import Population

    return Population.read(_folder(name))


def _sides(population: Population) -> Counter[str]:
    """Rounds on each side of private splits."""
    from fedlens.accountant.ledger.spending import SPLIT

    named = (entry.users or "" for entry in population.ledger.entries)
    return Counter(users for users in named if users.startswith(SPLIT))


def _guarantee(terms: PopulationTerms) -> str:
    """What a population promises by both notions of privacy."""
    return (
        f"DP ε ≤ {terms.epsilon_budget:g} and Bayesian DP ε ≤ {terms.epsilon_budget:g}, which DP "
        f"implies, at δ = {terms.delta:g}"
    )


def _print_worth(terms: PopulationTerms) -> None:
    """What the filter pays for, and what a plan that nothing can change would get."""
    from fedlens.accountant.events import SubsampledGaussian

    rows = []
    for rate, noise in EXAMPLES:
        sampler: Sampler = "none" if rate == 1 else "poisson"
        event = SubsampledGaussian(terms.unit, sampler, "add-remove", rate, noise, 1.0)
        drawn = f"{terms.unit}s drawn with {rate:g}" if rate < 1 else f"every {terms.unit}"
        numbers = terms.filter.rounds_of(event), terms.filter.rounds_beforehand(event)
        rows.append((f"{drawn}, noise {noise:g}", *(f"{n:,}" for n in numbers)))
    print_table(("rounds of", "it pays for", "a plan fixed beforehand gets"), rows)


def _rounds_left(population: Population) -> int | None:
    """How many more rounds like the last one fit; None before there was any."""
    entries = population.ledger.entries
    return population.rounds_left(entries[-1].event) if entries else None


def _record(population: Population) -> dict[str, Any]:
    shares = [{**vars(share), "alone": share.alone.to_json()} for share in population.shares()]
    return {
        **population.ledger.header,
        "spent": population.spent().to_json(),
        "share_spent": population.share_spent(),
        "spent_on_probes": population.spent_on_probes().to_json(),
        "rounds_left": _rounds_left(population),
        "entries": len(population.ledger),
        "head": population.ledger.head,
        "runs": shares,
    }
