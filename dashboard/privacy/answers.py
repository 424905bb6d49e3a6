"""Twelve questions of a privacy officer about some people, each with its answer.

The page, the statement in HTML and the one in PDF say the same, for they are made of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.officer import Decision, OfficerRules
from fedlens.accountant.ledger.population import EARLIER
from fedlens.accountant.ledger.prior import HEADER
from fedlens.accountant.ledger.spending import PROBE, Share
from fedlens.accountant.ledger.terms import PopulationError, population_folder
from fedlens.accountant.wording import percentage
from fedlens.dashboard.access.session import store_of
from fedlens.dashboard.privacy.books import MOST_BOUGHT, Books, PrivacyTotal
from fedlens.dashboard.privacy.filtered import filter_words
from fedlens.dashboard.summary import audits
from fedlens.dashboard.summary.privacy import NOT_PRIVATE, delta_text, epsilon_text
from fedlens.dashboard.widgets.markup import count_words
from fedlens.foundation.dates import today
from fedlens.store import AuditRecord, RunRecord, SpendingRule, StoredRequest

GOOD, WARN, BAD = "clear", "found", "refused"
"""Kinds of cards."""
PURPOSES: Mapping[str, str] = {
    "training round": "training",
    PROBE: "probe",
    EARLIER: "run that others build on",
}
FEW = 12
"""Lines of an answer; the table of entries has the rest."""


@dataclass(frozen=True)
class Answer:
    """One question with its answer: plain text throughout."""

    question: str
    said: str
    """The answer in a sentence or two."""
    facts: tuple[tuple[str, str], ...] = ()
    """What it rests on, each fact with its name."""
    kind: str = ""


@dataclass(frozen=True)
class Report:
    """All that is answered of some people on one day."""

    books: Books
    total: PrivacyTotal
    rule: SpendingRule
    requests: tuple[StoredRequest, ...]
    waiting: int
    """Probes of which an officer has not said yet whether they are asked."""
    day: date

    @property
    def title(self) -> str:
        """Of whom it is."""
        return self.books.people.title()


def report_of(books: Books, rule: SpendingRule, requests: Sequence[StoredRequest]) -> Report:
    """What can be said of some people today."""
    waiting = sum(one.status == "waiting" for one in requests) + len(books.waiting())
    return Report(books, books.total(), rule, tuple(requests), waiting, today())


def answers(report: Report) -> tuple[Answer, ...]:
    """The twelve, in their order."""
    return (
        _whose(report),
        _spent(report),
        _budget(report),
        _bayesian(report),
        _delta(report),
        _on_what(report),
        _left(report),
        _chain(report),
        _assumed(report),
        _audited(report),
        _who_may(report),
        _to_file(report),
    )


def standing(report: Report) -> tuple[str, str]:
    """How things stand, in a few words, with their colour."""
    total, books = report.total, report.books
    if _alarms(books):
        return audits.ALARM, "bad"
    if books.problems:
        return "A ledger does not hold", "bad"
    if math.isinf(total.epsilon):
        return (NOT_PRIVATE if not _private(books) else "no finite figure"), "bad"
    if total.used is None:
        return "no budget set", "found"
    if total.used > 1:
        return "above its budget", "bad"
    if total.used >= report.rule.warn_at:
        return f"warning: {percentage(total.used)} used", "found"
    return f"{percentage(total.used)} of the budget used", "good"


def binding_text(total: PrivacyTotal) -> str:
    """The binding figure in short."""
    return f"DP ε {epsilon_text(total.epsilon)}"


def _private(books: Books) -> bool:
    return all(run.private for run in books.people.runs)


def _unit(books: Books) -> str:
    return books.people.runs[0].unit


def _alarms(books: Books) -> list[AuditRecord]:
    return [one for run in books.people.runs for one in audits.alarms(_audits(run))]


def _audits(run: RunRecord) -> list[AuditRecord]:
    return store_of(run.run_id).audits(run.run_id)


def _whose(report: Report) -> Answer:
    books = report.books
    runs, unit = books.people.runs, _unit(books)
    users = max(run.users for run in runs)
    whom = "one person with all their records" if unit == "user" else "one record, not a person"
    facts = [("Hidden", f"whether {whom} took part"), ("Enrolled", _enrolled(books, users))]
    facts.append(("Data", ", ".join(sorted({run.data_name for run in runs}))))
    if books.population is not None and books.population.terms.slices:
        facts.append(
            ("Slices", f"by {books.population.terms.slices}; the most expensive is counted")
        )
    return Answer(
        "Whose privacy is it, and what is hidden?",
        f"{report.title}: {users:,} users, protected one by one at {unit} level.",
        tuple(facts),
        "" if unit == "user" else WARN,
    )


def _enrolled(books: Books, users: int) -> str:
    terms = None if books.population is None else books.population.terms
    most = f", of {terms.users:,} in the population" if terms is not None and terms.users else ""
    nodes = max(run.nodes for run in books.people.runs)
    return f"{users:,} on {count_words(nodes, 'node')}{most}"


def _spent(report: Report) -> Answer:
    total, books = report.total, report.books
    at = f"δ = {delta_text(total.delta)}"
    if math.isinf(total.epsilon):
        return Answer("How much has been spent in total?", _no_figure(books), (), BAD)
    facts = [
        ("Binds", f"{binding_text(total)} at {at}: for any person, whatever their data"),
        ("Counted", f"{_counted(books)}; {_how_counted(books)}"),
    ]
    if books.population is not None:
        facts.append(
            (
                "However chosen",
                f"DP ε ≤ {epsilon_text(books.population.terms.epsilon_budget)} whatever was chosen "
                "by what was released; the figure above presumes that nothing was",
            )
        )
    else:
        facts.append(("Presumes", "that no run or probe was chosen by what another released"))
    facts += [
        ("With filters", said) for said in filter_words(books.people.runs, binding_text(total))
    ]
    return Answer("How much has been spent in total?", _total_words(total), tuple(facts), GOOD)


def _how_counted(books: Books) -> str:
    if not books.readable:
        return "no more than that is known"
    if books.population is not None:
        return "all that was granted, and no less than what one of them says of itself"
    return "those under way and ended early as all that they had planned"


def _total_words(total: PrivacyTotal) -> str:
    return f"{binding_text(total)} at δ = {delta_text(total.delta)}. This is the figure that binds."


def _no_figure(books: Books) -> str:
    if not _private(books):
        return "Without bound: a run added no noise, or noise that can be repeated. NOT PRIVATE."
    return (
        "Not known here: of the runs of these people a ledger is missing, or does not verify. Open "
        "the dashboard on the folder that has all of them."
    )


def _counted(books: Books) -> str:
    if not books.readable:
        return f"{count_words(len(books.rounds), 'run')} by the copy in its store"
    shares = books.shares()
    probes = sum(PROBE in share.purposes for share in shares)
    runs = len(shares) - probes
    return f"{count_words(runs, 'run')} and {count_words(probes, 'probe')}"


def _budget(report: Report) -> Answer:
    total, rule = report.total, report.rule
    question = "Against which budget?"
    if total.budget is None or total.used is None:
        return Answer(
            question,
            "None: nothing stops the next run or probe. Name a population in the settings of the "
            "next run (privacy.population), or give a run privacy.epsilon_budget.",
            (),
            WARN,
        )
    facts = [("Budget", f"DP ε ≤ {epsilon_text(total.budget)} at δ = {delta_text(total.delta)}")]
    facts.append(("Used", _used_words(report)))
    facts.append(("Warns", f"from {rule.warn_at:.0%} on{_by(rule)}"))
    kind, words = _judged(total.used, rule)
    return Answer(question, words, tuple(facts), kind)


def _judged(used: float, rule: SpendingRule) -> tuple[str, str]:
    if used > 1:
        return BAD, f"{percentage(used)} of the budget is used: it was passed."
    if used >= rule.warn_at:
        return WARN, f"Warning: {percentage(used)} of the budget is used."
    return GOOD, f"{percentage(used)} of the budget is used."


def _used_words(report: Report) -> str:
    population, used = report.books.population, report.total.used or 0.0
    if population is None:
        return f"{percentage(used)}; the budget stops the run's rounds, and no probe"
    order = population.terms.order
    return f"{percentage(used)}, as its filter of order {order:g} counts: this decides"


def _by(rule: SpendingRule) -> str:
    return f", set by {rule.author}" if rule.author else ", as nobody set another"


def _bayesian(report: Report) -> Answer:
    total = report.total
    low, high = delta_text(total.delta), delta_text(total.bayesian_delta)
    bayesian, dp = epsilon_text(total.bayesian), _at_bayesian(total)
    binding = epsilon_text(total.epsilon)
    return Answer(
        "What does Bayesian privacy say, at the same δ?",
        f"For people like those enrolled: ε = {bayesian} at δ = {high}, where DP ε is {dp}. It "
        "decides nothing: an unusual person has the DP figure alone.",
        (
            (f"At δ = {low}", f"DP ε {binding}; Bayesian DP ε ≤ {binding}, which DP implies"),
            (f"At δ = {high}", f"DP ε {dp}; Bayesian DP ε ≤ {bayesian}, sound"),
        ),
    )


def _at_bayesian(total: PrivacyTotal) -> str:
    """DP ε at the Bayesian δ; a store alone does not have it of a run that is private."""
    if math.isinf(total.epsilon_at_bayesian) and math.isfinite(total.epsilon):
        return "not known without its ledger"
    return epsilon_text(total.epsilon_at_bayesian)


def _delta(report: Report) -> Answer:
    users = max(run.users for run in report.books.people.runs)
    delta = report.total.delta
    small = delta * users < 0.2
    said = f"δ = {delta_text(delta)} is {delta_text(delta * users)} of one over {users:,} users"
    if _unit(report.books) == "record":
        return Answer(
            "Is δ small enough?",
            "δ has to be far below one over the number of records, which the server does not know.",
            (("δ", delta_text(delta)),),
            WARN,
        )
    return Answer(
        "Is δ small enough?",
        f"{said}: {'far below it' if small else 'not far below it, choose a smaller one'}.",
        (("Means", "the chance with which the figure may fail for a person"),),
        GOOD if small else WARN,
    )


def _on_what(report: Report) -> Answer:
    shares = report.books.shares()
    names = {run.run_id: run.name for run in report.books.people.runs}
    facts = [(names.get(one.run, one.run)[:48], _share_words(one)) for one in shares[-FEW:]]
    if len(shares) > FEW:
        facts.append(("Before them", f"{len(shares) - FEW:,} more, in the table of entries"))
    return Answer(
        "What was it spent on?",
        _spenders(report.books),
        tuple(facts),
    )


def _spenders(books: Books) -> str:
    shares = books.shares()
    if not shares:
        return "Nothing yet." if books.readable else "No entry can be read here."
    alone = " Each figure is that of one alone; they do not add up to the total."
    return f"{_counted(books)}.{alone if len(shares) > 1 else ''}"


def _entries_words(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _share_words(share: Share) -> str:
    what = ", ".join(PURPOSES.get(one, one) for one in share.purposes)
    about = f" on {', '.join(share.users)}" if share.users else ""
    alone = f"DP ε {epsilon_text(share.alone.epsilon)} alone"
    return f"{what}{about}: {_entries_words(share.grants)}, {alone}"


def _left(report: Report) -> Answer:
    bought, used = report.books.rounds_left(), report.total.used
    question = "What is left, and what would it buy?"
    if used is None:
        return Answer(question, "Without a budget that cannot be said.", (), WARN)
    left = f"{max(0, math.floor(1000 * (1 - used))) / 10:g}% of the budget is left."
    facts = tuple((f"{_many(count)}", what) for what, count in bought)
    return Answer(question, f"{left} By itself it would pay for one of these:", facts)


def _many(count: int) -> str:
    return f"{MOST_BOUGHT:,} or more" if count >= MOST_BOUGHT else f"{count:,}"


def _chain(report: Report) -> Answer:
    chains = report.books.chains
    question = "Was everything paid for before it was released, and is the record whole?"
    if not chains:
        return Answer(question, "No ledger was found on this machine; only a copy of it.", (), WARN)
    facts = [(one.name[:48], _chain_words(one.problem, one.ledger)) for one in chains[:FEW]]
    if len(chains) > FEW:
        facts.append(("And", f"{len(chains) - FEW:,} more ledgers, checked as well"))
    wrong = report.books.problems
    said = (
        f"No: {len(wrong)} of {len(chains)} ledgers cannot be trusted. Release nothing more."
        if wrong
        else f"Yes: {count_words(len(chains), 'ledger')} read and every hash holds, on "
        f"{report.day:%Y-%m-%d}. Compare the heads with those that you filed before."
    )
    return Answer(question, said, tuple(facts), BAD if wrong else GOOD)


def _chain_words(problem: str, ledger: Ledger | None) -> str:
    if problem:
        return f"does not hold: {problem}"
    if ledger is None:
        return "cannot be read"
    return f"holds, {_entries_words(len(ledger))}, head {ledger.head}"


def _assumed(report: Report) -> Answer:
    books = report.books
    configs = [run.config for run in books.people.runs]
    unit = _unit(books)
    by_nodes = all(one.get("aggregation.noise") == "distributed" for one in configs)
    secure = by_nodes or unit == "record"
    facts = [
        ("Noise", "added by the nodes; the server never sees a sum without it" if secure else
         "added by the server, which is trusted to add it and to keep sums to itself"),
        ("One person", "is one user: who is enrolled twice is protected half as well"),
        ("Other runs", "on the same people name the same population" if books.population else
         "on the same people are none: a run that names no population is counted by itself"),
        ("Settings", "were not chosen by looking at real data"),
        ("Machines", "random numbers, memory and clocks are sound"),
    ]  # fmt: skip
    declared = sorted(_declared(books))
    if declared:
        facts.append(("Declared", f"by an operator, unchecked: {'; '.join(declared)}"))
    return Answer(
        "What is assumed?",
        "The figures hold where all of this is true.",
        tuple(facts),
        WARN if declared else "",
    )


def _declared(books: Books) -> set[str]:
    """What operators declared on record that leaves something out."""
    found = set()
    for chain in books.chains:
        header = {} if chain.ledger is None else chain.ledger.header
        prior = header.get(HEADER)
        if isinstance(prior, dict) and prior.get("other_people"):
            found.add(f"run {prior.get('run_id')}, on which {chain.name} builds, had other people")
        if header.get("noise_source", "os-entropy") != "os-entropy":
            found.add(f"{chain.name} drew its noise from a fixed seed")
    return found


def _audited(report: Report) -> Answer:
    runs = report.books.people.runs
    lines = [(run, one) for run in runs for one in audits.newest(_audits(run))]
    question = "What was audited, when, and what was found?"
    if not lines:
        return Answer(
            question,
            "Nothing yet. The command fedlens audit sends invented users through the same code.",
            (),
            WARN,
        )
    facts = tuple(
        (f"{one.at:%Y-%m-%d}", f"{audits.KINDS[one.kind]}, run {run.name}: "
         f"{audits.VERDICTS[one.verdict]}")
        for run, one in lines[-FEW:]
    )  # fmt: skip
    alarms = _alarms(report.books)
    said = audits.ALARM_MEANING if alarms else "No alarm. Finding nothing is no proof."
    return Answer(question, said, facts, BAD if alarms else GOOD)


def _who_may(report: Report) -> Answer:
    rule, waiting = report.rule, report.waiting
    above = rule.approve_above
    if above is None:
        said = "Engineers and admins ask probes without an officer: no limit is set."
    else:
        said = (
            f"Above DP ε = {epsilon_text(above)}, or beyond {rule.warn_at:.0%} of the budget, a "
            "probe waits for an officer."
        )
    facts = [("Waiting", f"{waiting} now")]
    told = [(f"{one.changed_at:%Y-%m-%d}", request_words(one)) for one in report.requests[:4]]
    told += [(one.day, decision_words(one)) for one in report.books.decided()[:4]]
    facts += sorted(told, reverse=True)[:4]
    facts.append(("Binds", _what_it_binds(report)))
    return Answer(
        "Who may spend, and who approved what?", said, tuple(facts), WARN if waiting else ""
    )


def _what_it_binds(report: Report) -> str:
    """What the rule holds for: commands too where the population's ledger has it."""
    population = report.books.people.population
    if not population:
        return "what is asked from pages; commands ask no ledger of a run without a population"
    try:
        own = OfficerRules.read(population_folder(population))
    except PopulationError as error:
        return str(error)
    if own.approve_above == report.rule.approve_above and own.warn_at == report.rule.warn_at:
        return "what is asked from pages and by commands: the population's ledger looks at it"
    return (
        "what is asked from pages alone: the population's ledger does not have this rule, so set "
        "it again below"
    )


def request_words(one: StoredRequest) -> str:
    """A request and what became of it."""
    by = f" by {one.decided_by}" if one.decided_by else ""
    note = f": {one.note}" if one.note else ""
    cost = f"DP ε {epsilon_text(one.epsilon)} at δ = {delta_text(one.delta)}"
    return f"{one.probe}, {cost}, asked for by {one.author}: {one.status}{by}{note}"


def decision_words(one: Decision) -> str:
    """What became of a probe that a run or a command was not let ask."""
    what = "approved" if one.approved else "declined"
    return f"{one.question}, asked for by a run or a command: {what} by {one.by}" + (
        f": {one.why}" if one.why else ""
    )


def _to_file(report: Report) -> Answer:
    return Answer(
        "What can be signed and filed?",
        f"A statement of {report.day:%Y-%m-%d} with these twelve answers and the heads of all "
        "ledgers, as HTML and as PDF.",
    )
