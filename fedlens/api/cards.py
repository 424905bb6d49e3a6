"""A federation's data card: what its users' pictures are like, before anything is learned."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedlens.api.runs import Run, open_run
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.simulations import SimulationSettings
    from fedlens.diagnosis.cards.changes import Change
    from fedlens.diagnosis.cards.estimates import Card
    from fedlens.diagnosis.cards.verdicts import Verdict
    from fedlens.server.config.card import CardConfig
    from fedlens.server.config.tree import Config
    from fedlens.server.round.status import Progress

CARD, PAGE = "card.json", "card.html"
TASK = "card"


@dataclass(frozen=True)
class CardReport:
    """A released card with what it cost, what changed and what was expected.

    Attributes:
        card: histograms with their errors.
        epsilon: DP ε of the card alone.
        spent: DP ε of all that its run released, the card included.
        delta: of both.
        bayesian_epsilon: Bayesian ε of all that the run released, corrected (an estimate).
        bayesian_sound: the same, a sound bound for people like those in the data.
        bayesian_delta: of both.
        planted: faults of a simulation, as in ``data.fault``; empty for none.
        compared: the run that it is compared with; empty for none.
        before: that run's card.
        changes: a row a statistic that both have.
        verdicts: on what was expected.
        run_dir: directory with ledger, settings and the card's files.
    """

    card: Card
    epsilon: float
    spent: float
    delta: float
    bayesian_epsilon: float
    bayesian_sound: float
    bayesian_delta: float
    planted: str
    compared: str
    before: Card | None
    changes: tuple[Change, ...]
    verdicts: tuple[Verdict, ...]
    run_dir: str

    @property
    def not_compared(self) -> tuple[str, ...]:
        """Statistics that one of both cards lacks, or has in other bins."""
        if self.before is None:
            return ()
        names = (one.statistic.name for card in (self.card, self.before) for one in card.histograms)
        tested = {one.name for one in self.changes}
        return tuple(dict.fromkeys(name for name in names if name not in tested))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; None for what is infinite."""
        from fedlens.diagnosis.cards.estimates import to_json
        from fedlens.foundation.json_values import json_value

        figures = (
            "epsilon",
            "spent",
            "delta",
            "bayesian_epsilon",
            "bayesian_sound",
            "bayesian_delta",
        )
        return {
            "run_dir": self.run_dir,
            **{name: json_value(getattr(self, name)) for name in figures},
            "planted": self.planted,
            **to_json(self.card),
            "compared": self.compared,
            "before": None if self.before is None else to_json(self.before),
            "changes": [one.to_json() for one in self.changes],
            "not_compared": list(self.not_compared),
            "verdicts": [one.to_json() for one in self.verdicts],
        }


def card(
    preset: str = "card",
    *,
    compare: Run | Path | str | None = None,
    expect: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    transport: str = "in-process",
    out: Path | str | None = None,
    overwrite: bool = False,
    store: str = "",
    **settings: Any,
) -> CardReport:
    """Ask all users of a simulated federation for their histograms once; release the noised mean.

    Args:
        preset: whose data and users are asked, one of `preset_names`; of its tasks none is carried
            out.
        compare: an earlier run with a card.
        expect: what is expected of the data, such as ``"duplicates < 2%"``, beside the settings';
            the run keeps it, and one that this card can never answer is refused before it is paid.
        progress: is told of its round.
        transport: how messages travel, as in `simulate`.
        out: directory of the card's run; ``runs/card-1``, ``-2``, ... by default.
        overwrite: rename a run that is at ``out`` already; what it spent still counts.
        store: URL of a store; a SQLite file in the directory by default.
        **settings: ``settings``, ``config``, ``epsilon``, ``delta`` and ``data_dir`` of `simulate`.

    Raises:
        WrongUse: an argument cannot be used.
        FedlensError: what else prevents it.
    """
    from fedlens.accountant.ledger.population import OutOfBudget
    from fedlens.api.simulations import SimulationSettings, prepare, train

    asked = SimulationSettings(preset, transport=transport, store=store, student=False, **settings)
    config = card_config(asked, expect)
    if compare is not None:
        _released(_run_of(compare))  # a run without a card is refused before anything is spent
    directory, _ = prepare(config, TASK, out=out, overwrite=overwrite)
    made = train(config, directory, asked, progress)
    if made.summary.stopped:
        raise OutOfBudget(made.summary.stopped)
    return read_card(made, compare=compare)


def card_config(asked: SimulationSettings, expect: Sequence[str] = ()) -> Config:
    """The settings of a run that asks for a card alone, of the users that settings speak of.

    Args:
        asked: whose users, at what cost.
        expect: what is expected of them, beside what the settings expect.

    Raises:
        WrongUse: a setting cannot be used.
    """
    from fedlens.api.simulations import chosen_config
    from fedlens.server.config import needs

    whole = replace(asked, epsilon=None, delta=None).configuration()
    if whole.privatizer.active:
        raise WrongUse(
            "a card is of pictures as they are, and these users hide an attribute of them: take "
            "settings without a privatizer"
        )
    own = whole.providers(needs.CARD)
    name = own[0] if own else TASK
    new: dict[str, object] = {} if own else {f"tasks.{TASK}.kind": TASK}
    if expect:
        kept = getattr(whole.tasks.get(name), "expect", "")
        new[f"tasks.{name}.expect"] = _together(kept, expect)
    named = {"schedule": name, "release.agreement": 0.0, **new}
    return chosen_config(config=whole.updated(named), epsilon=asked.epsilon, delta=asked.delta)


def read_card(
    run: Run | Path | str,
    *,
    compare: Run | Path | str | None = None,
    expect: Sequence[str] = (),
) -> CardReport:
    """The card that a run released; costs nothing. It is kept in the run, as JSON and as a page.

    Args:
        run: with a task of kind ``card``.
        compare: an earlier run with a card.
        expect: what is expected of the data, beside what the run's settings expect.

    Raises:
        WrongUse: it has no card, or an argument cannot be used.
        FedlensError: what it released cannot be read.
    """
    from fedlens.diagnosis.cards.changes import compare_cards
    from fedlens.diagnosis.cards.page import card_page
    from fedlens.diagnosis.cards.verdicts import judge
    from fedlens.models.cards.expectations import parse_expectations
    from fedlens.server.config import needs
    from fedlens.server.config.schedule import planned_epsilon
    from fedlens.server.ledger.run_ledger import spending_of

    made = _run_of(run)
    found, config = _released(made), made.config
    (name,) = config.providers(needs.CARD)
    task = cast("CardConfig", config.tasks[name])
    wanted = _together(task.expect, expect)
    earlier = None if compare is None else _run_of(compare)
    before = None if earlier is None else _released(earlier)
    spending = spending_of(config, made.directory)
    report = CardReport(
        card=found,
        epsilon=planned_epsilon(config, config.privacy.delta, name),
        spent=spending.dp_epsilon,
        delta=spending.delta_dp,
        bayesian_epsilon=spending.bdp_corrected,
        bayesian_sound=spending.bdp_sound,
        bayesian_delta=spending.delta_bdp,
        planted=config.data.fault,
        compared="" if earlier is None else str(earlier.path),
        before=before,
        changes=() if before is None else compare_cards(found, before),
        verdicts=judge(found, parse_expectations(wanted)),
        run_dir=str(made.path),
    )
    content = json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"
    made.directory.save(CARD, content.encode())
    made.directory.save(PAGE, card_page(report.to_json()).encode())
    return report


def _together(kept: str, more: Sequence[str]) -> str:
    return ", ".join(one for one in (kept, *more) if one)


def _run_of(run: Run | Path | str) -> Run:
    return run if isinstance(run, Run) else open_run(run)


def _released(run: Run) -> Card:
    from fedlens.diagnosis.cards.estimates import card_of
    from fedlens.server.round.releases import load_releases

    try:
        return card_of(load_releases(run.path))
    except WrongUse as error:
        raise WrongUse(f"{run.path}: {error}") from None
