"""Asking users one bounded number: the price before, the noised mean with its interval after."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from glob import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedlens.api.runs import Run, open_run
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.accountant.events import Event
    from fedlens.accountant.probing import ProbePrice
    from fedlens.models.probes.asking import AskedProbe
    from fedlens.server.config.probe import ProbeConfig
    from fedlens.server.config.tree import Config
    from fedlens.server.round.status import Progress

ANSWER = "probe.json"
ASKING = "probe"
"""Name of the one task of a run that asks."""


@dataclass(frozen=True)
class ProbeAnswer:
    """What the users of a federation answered together, and what it cost.

    Attributes:
        probe: the question as it was written.
        says: it in words.
        value: the answer, in the probe's own measure: a share for those that count users.
        low: of its 95% interval for the enrolled users: the noise is known and is all there is.
        high: the same.
        wider_low: of the interval for those whom the enrolled users were drawn from at random.
        wider_high: the same.
        users: who were asked; those without records, or on a node that failed, count as the least.
        epsilon: DP ε of the probe alone.
        delta: its δ.
        bayesian_epsilon: Bayesian ε of the probe alone, corrected (an estimate).
        bayesian_delta: its δ.
        together: DP ε of all that was spent of these users that is known, this included, if none
            of it was chosen by what another release showed.
        run_dir: directory with ledger and settings.
    """

    probe: str
    says: str
    value: float
    low: float
    high: float
    wider_low: float
    wider_high: float
    users: int
    epsilon: float
    delta: float
    bayesian_epsilon: float
    bayesian_delta: float
    together: float
    run_dir: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def probe_price(
    subject: Run | Config | Path | str,
    probe: str,
    *,
    epsilon: float,
    delta: float | None = None,
    model: Run | Path | str | None = None,
) -> ProbePrice:
    """What a probe would cost; nothing is asked and nothing is spent.

    Args:
        subject: whose users would be asked: a run, its directory, or a configuration.
        probe: the question, ``NAME`` or ``NAME:ARGUMENT``.
        epsilon: DP ε that it may cost by itself.
        delta: its δ; the run's own by default.
        model: run whose annotator is to be asked, where it is another: without a population its
            releases are counted as of the same users.

    Raises:
        WrongUse: an argument cannot be used, or the run's users cannot be probed.
        FedlensError: the population's ledger cannot be trusted.
    """
    from fedlens.accountant.probing import price_of
    from fedlens.models.probes.asking import parse_probe
    from fedlens.server.learning.builds_on import check_earlier
    from fedlens.server.ledger.population import joined

    question, earlier = parse_probe(probe), [subject]
    if question.probe.needs_model and model is not None:
        earlier.append(model)
    base = _config_of(subject, delta)
    _check_goes_with(question, base)
    asking = probe_config(base, probe, 1.0, _model(subject, probe, model))
    check_earlier(asking)
    population = joined(base)
    return price_of(
        epsilon,
        base.privacy.delta,
        base.data.users,
        bayesian_delta=base.privacy.bayesian_delta,
        norms_share=base.privacy.norms_share,
        sharing=base.aggregation.sharing(base.data.nodes),
        population=population,
        asked=base.data.slice,
        question=_question_in(asking),
        prior=() if population is not None else _released(earlier),
    )


def probe(
    subject: Run | Config | Path | str,
    probe: str,
    *,
    epsilon: float,
    delta: float | None = None,
    model: Run | Path | str | None = None,
    out: Path | str | None = None,
    store: str = "",
    transport: str = "in-process",
    progress: Callable[[Progress], None] | None = None,
) -> ProbeAnswer:
    """Ask all users of a simulated federation one bounded number each; release their noised mean.

    Args:
        subject: whose users are asked: a run, its directory, or a configuration.
        probe: the question, ``NAME`` or ``NAME:ARGUMENT``, such as ``better_after:rotate270``.
        epsilon: DP ε that it may cost by itself.
        delta: its δ; the run's own by default.
        model: run whose released annotator is asked, for probes that ask a network; ``subject``
            by default.
        out: directory of the probe; beside the run by default.
        store: URL of a store; a SQLite file in the directory by default.
        transport: how messages travel, as in `simulate`.
        progress: is told of its round.

    Raises:
        WrongUse: an argument cannot be used, or the run's users cannot be probed.
        OutOfBudget: the population cannot pay, its owner leaves less to probes, or its officer has
            to approve it first. Nothing was asked.
        FedlensError: what else prevents it.
    """
    from fedlens.accountant.ledger.population import OutOfBudget
    from fedlens.api.simulations import SimulationSettings, prepare, train

    price = probe_price(subject, probe, epsilon=epsilon, delta=delta, model=model)
    base = _config_of(subject, delta)
    config = probe_config(base, probe, price.noise_multiplier, _model(subject, probe, model))
    if price.refusal:
        raise OutOfBudget(price.refusal)
    if price.waits:
        raise OutOfBudget(_put_before_officer(config, subject) or price.waits)
    where = _beside(subject) if out is None else Path(out)
    directory, _ = prepare(config, "probe", out=where)
    asked = SimulationSettings(store=store, transport=transport, student=False)
    made = train(config, directory, asked, progress)
    return _answer(made, price)


def probe_config(base: Config, probe: str, noise_multiplier: float, model: str) -> Config:
    """The settings of a run that asks one question of a run's users.

    Raises:
        WrongUse: a setting cannot be used.
    """
    return base.updated(
        {
            "schedule": ASKING,
            f"tasks.{ASKING}.kind": "probe",
            f"tasks.{ASKING}.probe": probe,
            f"tasks.{ASKING}.rounds": 1,
            f"tasks.{ASKING}.sampling_rate": 1.0,
            f"tasks.{ASKING}.noise_multiplier": noise_multiplier,
            f"tasks.{ASKING}.clipping_norm": 1.0,
            f"tasks.{ASKING}.model": model,
            "privacy.epsilon_budget": 0.0,
            "privacy.bayesian_epsilon_budget": 0.0,
            "release.agreement": 0.0,
            "aggregation.trimmed_share": 0.0,  # an answer is of all users
        }
    )


def _question_in(config: Config) -> str:
    """What `probe_config` asks, as an officer approves it."""
    from fedlens.server.ledger.run_ledger import question_of

    return question_of(ASKING, config.tasks[ASKING])


def _put_before_officer(config: Config, subject: Run | Config | Path | str) -> str | None:
    """Have an officer asked; why the probe waits, or why it was not even put there."""
    from fedlens.accountant.ledger.spending import PROBE
    from fedlens.server.config.schedule import task_at
    from fedlens.server.ledger.population import joined

    population, event = joined(config), task_at(config, 1).event
    run = _run_of(subject).id if isinstance(subject, (Run, Path, str)) else ""
    if population is None:
        return None
    return population.ask_officer(event, PROBE, config.data.slice, _question_in(config), run=run)


def _answer(made: Run, price: ProbePrice) -> ProbeAnswer:
    from fedlens.accountant.ledger.population import OutOfBudget
    from fedlens.accountant.ledger.spending import PROBE
    from fedlens.accountant.probing import deviation_of, estimate_of
    from fedlens.models.probes.asking import parse_probe
    from fedlens.server.ledger.run_ledger import spending_of

    config, summary = made.config, made.summary
    if summary.stopped:
        raise OutOfBudget(summary.stopped)
    (asked,) = (one for one in config.tasks.values() if one.purpose == PROBE)
    task = cast("ProbeConfig", asked)
    users, question = config.data.users, parse_probe(task.probe)
    mean = _released_mean(made)
    sharing = config.aggregation.sharing(config.data.nodes)
    deviation = deviation_of(task.noise_multiplier, users, config.privacy.norms_share, sharing)
    found = estimate_of(mean, deviation, users)
    spending = spending_of(config, made.directory)
    figures = {name: _in_measure(question, value) for name, value in asdict(found).items()}
    answer = ProbeAnswer(
        probe=task.probe,
        says=question.says,
        **figures,
        users=users,
        epsilon=spending.dp_epsilon,
        delta=spending.delta_dp,
        bayesian_epsilon=spending.bdp_corrected,
        bayesian_delta=spending.delta_bdp,
        together=price.together,
        run_dir=str(made.path),
    )
    made.directory.save(ANSWER, (json.dumps(answer.to_json(), indent=1) + "\n").encode())
    made.directory.date_everything()
    return answer


def _in_measure(question: AskedProbe, value: float) -> float:
    """A mean of users' numbers in [0, 1] in the probe's own measure."""
    probe = question.probe
    return value if probe.user == "vote" else probe.low + (probe.high - probe.low) * value


def _released_mean(made: Run) -> float:
    from fedlens.server.run.directory import RunDirectoryError
    from fedlens.server.run.history import RoundHistory
    from fedlens.server.tasks.probe import ANSWER as FIGURE

    snapshot = made.directory.load_state()
    last = {} if snapshot is None else RoundHistory(made.directory).last(snapshot)
    metrics = last.get("metrics", {})
    if FIGURE not in metrics:
        raise RunDirectoryError(
            f"{made.path}: the answer was lost with a process; it stays paid for, ask anew"
        )
    return float(metrics[FIGURE])


def why_not_asked(config: Config, probe: str) -> str:
    """Why a run's users cannot be asked a question, in words; empty where they can.

    Args:
        config: the run's settings.
        probe: the question; empty for any that asks no network.
    """
    from fedlens.models.probes.asking import parse_probe

    if config.privacy.unit != "user":
        return "a probe asks users, and this run protects records: probe a run of unit user"
    if config.privatizer.active:
        return (
            "a probe looks at records as they are, and this run's users hide an attribute of them: "
            "probe a run without a privatizer"
        )
    if probe and parse_probe(probe).probe.needs_model and config.annotator is None:
        return (
            f"probe {probe!r} asks a network that knows the classes, and this run trained none: "
            "name a run with an annotator as model"
        )
    return ""


def _config_of(subject: Run | Config | Path | str, delta: float | None) -> Config:
    base = _run_of(subject).config if isinstance(subject, (Run, Path, str)) else subject
    if refusal := why_not_asked(base, ""):
        raise WrongUse(refusal)
    if base.split.active:
        raise WrongUse(
            "a probe asks users whom a server can count, and this run is on one side of a private "
            f"split: probe the run that it is split by, {base.split.model}"
        )
    return base if delta is None else base.updated({"privacy.delta": delta})


def _check_goes_with(question: AskedProbe, config: Config) -> None:
    """Refuse what simulated data have no answer to, before a folder is made for it."""
    from fedlens.client.contract import PREFIX
    from fedlens.simulations.federation.apps import simulated_federation

    if config.data.name.partition(":")[0] != PREFIX:
        dataset, _ = simulated_federation(config.data, config.seed)
        question.check(dataset.shape, dataset.classes)


def _run_of(subject: Run | Path | str) -> Run:
    return subject if isinstance(subject, Run) else open_run(subject)


def _model(subject: Run | Config | Path | str, probe: str, model: Run | Path | str | None) -> str:
    from fedlens.models.probes.asking import parse_probe

    if not parse_probe(probe).probe.needs_model:
        return ""
    if model is not None:
        return str(_run_of(model).path.absolute())
    if not isinstance(subject, (Run, Path, str)):
        raise WrongUse(
            f"probe {probe!r} asks a network that knows the classes: name a run with an annotator "
            "as model"
        )
    run = _run_of(subject)
    if refusal := why_not_asked(run.config, probe):
        raise WrongUse(refusal)
    return str(run.path.absolute())


def _beside(subject: Run | Config | Path | str) -> Path | None:
    """A free directory next to the run that is asked about."""
    if not isinstance(subject, (Run, Path, str)):
        return None
    path, number = _run_of(subject).path, 1
    while (found := path.with_name(f"{path.name}-probe-{number}")).exists():
        number += 1
    return found


def _released(subjects: Sequence[Run | Config | Path | str]) -> list[Event]:
    """What runs and the probes beside them have released of users, each once.

    Of one that ended early it is the whole plan: its end may have been chosen by its releases. What
    was released of records is under another guarantee, and does not add up with the others.
    """
    from fedlens.accountant.ledger.ledger import Ledger
    from fedlens.accountant.ledger.together import LedgersTogether

    paths = [_run_of(one).path for one in subjects if isinstance(one, (Run, Path, str))]
    beside = [path.parent.glob(f"{escape(path.name)}-probe-*") for path in paths]
    folders = sorted({one.resolve() for one in chain(paths, *beside)})
    found = [one / "ledger.jsonl" for one in folders if (one / "ledger.jsonl").exists()]
    ledgers = [Ledger.read(path) for path in found]
    asked = [ledger for ledger in ledgers if ledger.header["unit"] == "user"]
    return LedgersTogether(asked).events if asked else []
