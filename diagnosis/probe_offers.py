"""The probe that would confirm a finding of a diagnosis, with its price: for pages and commands.

A finding names a fault, and the question that its `Fault` says. If its users' records are
recognised better once the fault is undone, or are no longer changed by it, the fault is there,
whatever else could have moved the released sums. Nothing here looks at data, and nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote

from fedlens.accountant.ledger.population import Population
from fedlens.accountant.probing import ProbePrice, approved_as, price_of

EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""What an offer may cost; the least that tells the share well enough is offered."""
WITHIN = 0.03
"""Half of the 95% interval that is well enough."""


@dataclass(frozen=True)
class ProbeOffer:
    """A probe that would confirm a finding."""

    probe: str
    """As it is written."""
    price: ProbePrice

    def command(self, run_dir: str) -> str:
        """What asks it."""
        return (
            f"fedlens probe {quote(run_dir)} --probe {quote(self.probe)} "
            f"--epsilon {self.price.asked_epsilon:g} --delta {self.price.delta:g}"
        )


def probe_offer(
    text: str,
    *,
    users: int,
    delta: float,
    population: Population | None = None,
    asked: str = "",
    run_id: str = "",
    within: float = WITHIN,
) -> ProbeOffer | None:
    """A finding's probe at the least cost that tells its share well enough.

    Args:
        text: the question, as the finding gives it; empty for none.
        users: N, who would be asked.
        delta: δ of its price: the population's, or the run's.
        population: whose budget pays, if any; its refusal is in the price.
        asked: slice of the population that is asked.
        run_id: of the run in which it was found, whose network is asked where one is.
        within: half of the 95% interval that is wanted.

    Returns:
        None where there is no question.
    """
    if not text:
        return None
    question = "" if population is None else question_about(text, run_id)
    for epsilon in EPSILONS:
        price = price_of(
            epsilon, delta, users, population=population, asked=asked, question=question
        )
        if price.half_width <= within:
            break
    return ProbeOffer(text, price)


def question_about(text: str, run_id: str) -> str:
    """What an officer's approvals call a question about a run."""
    from fedlens.models.probes.asking import parse_probe  # with torch, which takes a second

    return approved_as(text, run_id if parse_probe(text).probe.needs_model else "")
