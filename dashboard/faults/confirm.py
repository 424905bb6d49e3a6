"""The probe that would confirm a finding: what it asks, what it costs, how near its answer is.

A page asks nothing of users. It shows the command, so that what is spent is spent by a person with
the right to, from the ledger's own machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.terms import population_folder
from fedlens.dashboard.faults.answer import DiagnosedFault
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import text
from fedlens.diagnosis.probe_offers import ProbeOffer, probe_offer
from fedlens.foundation.errors import FedlensError
from fedlens.store import RunRecord


def render_probe_offer(finding: DiagnosedFault, run: RunRecord, path: str, classes: int) -> None:
    """Put a card for the probe on the page; nothing where there is none."""
    offer = offer_for(finding, run.config, classes)
    if offer is not None:
        split = run.config.get("split.side", "none") != "none"  # whose users cannot be counted
        put_card(offer_card(offer, str(run.config.get("split.model")) if split else path))


def offer_for(
    finding: DiagnosedFault, config: Mapping[str, object], classes: int
) -> ProbeOffer | None:
    """The probe that would confirm a finding of a run with these settings, priced.

    A run that another program entered may lack settings: nothing can be priced then.
    """
    if not {"data.users", "privacy.delta"} <= set(config):
        return None
    return probe_offer(
        finding.fault,
        users=int(str(config["data.users"])),
        delta=float(str(config["privacy.delta"])),
        amount=finding.amount,
        classes=finding.classes,
        total=classes,
        population=_population(str(config.get("privacy.population", ""))),
        asked=str(config.get("data.slice", "")),
    )


def _population(named: str) -> Population | None:
    """The population that pays, where it can be read on this machine."""
    if not named:
        return None
    try:
        return Population.read(population_folder(named))
    except (FedlensError, OSError):
        return None


def offer_card(offer: ProbeOffer, path: str) -> str:
    """The offer as a card's inner HTML."""
    price = offer.price
    budget = "" if price.budget is None else f" of the population's {price.budget:g}"
    spent = f"<dt>Then spent</dt><dd>ε = {_up(price.together)}{budget}</dd>" * bool(price.budget)
    refused = f"<dt>Refused</dt><dd>{text(price.refusal)}</dd>" if price.refusal else ""
    return (
        '<p class="over">Confirm it</p><h2>Ask all users one number</h2>'
        "<p>Each device computes whether the fault is there; only a noised sum over "
        f"{price.users} users is released.</p>"
        f'<dl class="facts"><dt>Probe</dt><dd><code>{text(offer.probe)}</code></dd>'
        f"<dt>Costs</dt><dd>DP ε = {_up(price.epsilon)} at δ = {price.delta:g}; Bayesian DP "
        f"ε ≤ {_up(price.bayesian_epsilon)} at δ = {price.bayesian_delta:g}</dd>{spent}"
        f"<dt>Tells</dt><dd>the share of users to ±{100 * price.half_width:.1f} points</dd>"
        f"{refused}<dt>Command</dt><dd><code>{text(offer.command(path))}</code></dd></dl>"
    )


def _up(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{math.ceil(100 * epsilon) / 100:g}"
