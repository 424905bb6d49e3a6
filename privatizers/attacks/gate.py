"""The attack as a gate: does a filter do what its file claims?

First what can be looked up (`fedlens.privatizers.attacks.structure`), then what attackers read, of
one release, of near-duplicates and without noise, then the use that is left; each against the
claims. The answer is one of three: it *holds* under these attackers (a better one may come), it
*falls*, or this *cannot tell*: no claims, other records than those it was made for, or too few.

Simulation only: attackers learn from raw records with known attributes, which they filter
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedlens.data.attributes.options import without_path
from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.attackers.likelihood import LikelihoodAttacker
from fedlens.privatizers.attacks.attackers.reading_nets import accuracy, read_images, read_points
from fedlens.privatizers.attacks.claims import BARE, FIFTY, ONE, TEN, Claims
from fedlens.privatizers.attacks.controls import (
    ANSWER,
    STEPS,
    TRUE_USE,
    Control,
    dominated,
    has_answers,
    read_controls,
)
from fedlens.privatizers.attacks.filter_attack import (
    USUAL,
    Effort,
    FilterAttack,
    attack_code,
    attack_filter,
    facing,
    strongest,
    told,
)
from fedlens.privatizers.attacks.structure import (
    STILL,
    Check,
    Verdict,
    certified_nats,
    noise_moves,
    overall,
)
from fedlens.privatizers.attacks.targets import FilterTarget
from fedlens.privatizers.certificate import Certified, certified
from fedlens.privatizers.channels import channel_of, radius_of_codes
from fedlens.privatizers.private_data import PrivateData

Tell = Callable[[str], None]

LOOKS: tuple[tuple[str, str], ...] = (
    ("likelihood", ONE), ("code", ONE),
    ("likelihood", TEN), ("code", TEN),
    ("code", FIFTY), ("code", BARE),
)  # fmt: skip
"""Who attacks a filter that shows its code, and what it sees."""
WITHOUT_CODE = ("residual", "features", "trees", "logistic")
"""Who attacks one that does not."""
WIDEST = 0.05
"""Half of an interval: a reading that is less sure decides nothing."""
SLACK = 0.01
"""By what a reading may exceed its claim: the luck of noise and of an attacker's start."""
LOST = 0.02
"""By what the use may fall short of its claim."""


@dataclass(frozen=True)
class Measured:
    """What attackers read of a filter, and what is left of its use.

    Attributes:
        attacks: in order.
        use: share of uses read from one release, or its code; None where the use is the record.
    """

    attacks: tuple[FilterAttack, ...]
    use: float | None

    def best(self, sees: str) -> FilterAttack | None:
        """Who reads most of what it sees; None where nobody looked."""
        found = [one for one in self.attacks if one.sees == sees and one.releases == 1]
        return strongest(found) if found else None

    def reads(self) -> dict[str, float]:
        """Balanced accuracy of the strongest, by what it sees."""
        best = ((sees, self.best(sees)) for sees in (ONE, TEN, FIFTY, BARE))
        return {sees: one.balanced for sees, one in best if one is not None}


def measure_filter(
    target: FilterTarget,
    effort: Effort,
    tell: Tell = lambda _: None,
    *,
    names: Sequence[str] = (),
    releases: Sequence[int] = (1,),
) -> Measured:
    """Attack a filter: by its code where it shows one, else by its releases.

    Args:
        target: the filter, and the records.
        effort: how hard the attackers try.
        tell: is told how far it is.
        names: these attackers alone.
        releases: numbers of releases of each record that attackers see besides one.
    """
    coded = channel_of(target.filter) is not None and target.test.sensitive.ndim == 1
    many = releases if names or not coded else [count for count in releases if count > 1]
    chosen = names or (("likelihood", "code") if coded else WITHOUT_CODE)
    attacks = _by_looks(target, effort, tell) if coded and not names else []
    if many:
        attacks += attack_filter(target, chosen, releases=many, effort=effort, tell=tell)
    use = _use_of_codes if coded else _use_of_releases
    return Measured(tuple(attacks), use(target, effort))


def _by_looks(target: FilterTarget, effort: Effort, tell: Tell) -> list[FilterAttack]:
    attacks: list[FilterAttack] = []
    for name, sees in LOOKS:
        if name == "likelihood" and not target.affine:
            continue
        tell(f"{name}, {sees} ...")
        attacks.append(attack_code(target, name, sees, effort))
        tell(told(attacks[-1]))
    return attacks


CODE_COLUMNS = (
    "use_alone", "answer", "answer_use", "code_reader", "alike_x10", "noise_free", "code_nats",
)  # fmt: skip
"""Columns that lead a study's table: what the use alone tells of the secret, and a network's answer
in place of a record, with its use; then who reads the code, of one release, of ten near-duplicates,
and without noise."""


def judge_code(
    target: FilterTarget,
    steps: int,
    dealt: int = 0,
    controls: Sequence[Control] | None = None,
) -> tuple[Row, Claims]:
    """`CODE_COLUMNS` of a filter, with all labelled records, and what it may claim for them.

    Rows also have the 95% interval of one release, ``code_low`` and ``code_high``. Where a filter
    shows no code, nobody reads one.

    Args:
        target: the filter, and the records.
        steps: batches of the network that reads codes.
        dealt: the seed by which the source was dealt into parts.
        controls: as :func:`controls_of` finds them, where other filters of these records were
            judged before; None finds them.
    """
    rounds = max(10, min(USUAL.tree_rounds, steps // 10))
    effort = replace(USUAL, reader_steps=steps, tree_rounds=rounds, network_steps=min(600, steps))
    controls = controls_of(target, steps) if controls is None else controls
    measured = measure_filter(target, effort)
    row = _columns(measured, controls, coded=channel_of(target.filter) is not None)
    reads, alone = measured.reads(), control_of(controls)
    return row, claims_of(target.filter, target.test, reads, alone, measured.use, dealt)


def controls_of(target: FilterTarget, steps: int) -> list[Control]:
    """What is to be had without a filter: the same for every filter of these records and seed."""
    return read_controls(target.known, target.test, target.seed, steps=min(STEPS, steps))


def _columns(measured: Measured, controls: Sequence[Control], *, coded: bool) -> Row:
    row: Row = dict.fromkeys(CODE_COLUMNS)
    row["use_alone"], row["answer"] = control_of(controls), control_of(controls, ANSWER)
    row["answer_use"] = next((one.use for one in controls if one.sent == ANSWER), None)
    one = measured.best(ONE)
    if not coded or one is None:
        return row
    reads = measured.reads()
    return row | {
        "code_reader": one.balanced,
        "code_low": one.low,
        "code_high": one.high,
        "alike_x10": reads.get(TEN),
        "noise_free": reads.get(BARE),
        "code_nats": max(found.nats for found in measured.attacks if found.sees == ONE),
        "code_records": one.records,
    }


def claims_of(
    filter_: nn.Module,
    test: PrivateData,
    reads: Mapping[str, float],
    use_alone: float | None,
    use: float | None,
    dealt: int,
) -> Claims:
    """What may be claimed of a filter that was measured.

    Args:
        filter_: the filter.
        test: the raw records that it was measured on; their source's name counts, not its place.
        reads: balanced accuracy of the strongest attacker, by what it sees.
        use_alone: the same of who knows the use and nothing else.
        use: share of uses that is read from one release, of series 1 − NE.
        dealt: the seed by which the source was dealt into parts.
    """
    noisy = noise_moves(filter_, test.records[:64]) > STILL
    nats = certified_nats(filter_)
    return Claims(without_path(test.name), noisy, nats, reads, use_alone, use, dealt)


def check_claims(claims: Claims | None, measured: Measured) -> list[Check]:
    """Every claimed reading, and the use, against what was measured."""
    if claims is None:
        said = "of what attackers read: none; a curve or study measures that, no run and no export"
        return [Check("claims", Verdict.UNKNOWN, said)]
    checks = [
        _reading(sees, claimed, found)
        for sees, claimed in claims.reads.items()
        if sees != BARE  # nobody takes the noise off: shown, not held against it
        if (found := measured.best(sees)) is not None
    ]
    if claims.use is not None and measured.use is not None:
        falls = measured.use < claims.use - LOST
        said = f"{measured.use:.3f}, claimed {claims.use:.3f}"
        checks.append(Check("use", Verdict.FALLS if falls else Verdict.HOLDS, said))
    return checks or [Check("claims", Verdict.UNKNOWN, "nothing that was measured here")]


def _reading(sees: str, claimed: float, found: FilterAttack) -> Check:
    """Falls where the reading is above its claim by more than luck."""
    said = (
        f"{found.balanced:.3f} ({found.low:.3f} to {found.high:.3f}) by {found.attacker}, "
        f"claimed {claimed:.3f}"
    )
    verdict = Verdict.HOLDS
    luck = 0.0 if sees == ONE else SLACK  # of one draw, and of fewer records
    if found.low > claimed + luck and found.balanced > claimed + SLACK:
        verdict = Verdict.FALLS
    elif found.high - found.low > 2 * WIDEST:
        verdict, said = Verdict.UNKNOWN, f"{said}; too few records"
    return Check(f"secret, {sees}", verdict, said)


@dataclass(frozen=True)
class GateReport:
    """What an attack of a filter says.

    Attributes:
        data: the source; empty where nothing but the structure was looked at.
        claims: of the file; None where it has none.
        checks: in order.
        controls: what is to be had without a filter.
        measured: what attackers read.
        certified: what a bound of the code forbids; empty where there is none.
    """

    data: str
    claims: Claims | None
    checks: tuple[Check, ...]
    controls: tuple[Control, ...] = ()
    measured: Measured | None = None
    certified: tuple[Certified, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Of all checks."""
        return overall(self.checks)

    @property
    def dominated(self) -> bool:
        """Whether sending the answer alone keeps as much of the use and tells no more."""
        answer = next((one for one in self.controls if one.sent == ANSWER), None)
        found = None if self.measured is None else self.measured.best(ONE)
        if found is None or self.measured is None:
            return False
        return dominated(found.balanced, self.measured.use, answer)

    def table(self) -> list[dict[str, Any]]:
        """Rows from chance to no noise: what is sent, what it tells of the secret, its use."""
        rows: list[dict[str, Any]] = [
            {"sent": one.sent, "secret": one.secret, "low": one.low, "high": one.high,
             "use": one.use, "attacker": None}
            for one in self.controls
        ]  # fmt: skip
        for sees in (ONE, TEN, FIFTY, BARE):
            found = None if self.measured is None else self.measured.best(sees)
            if found is not None and self.measured is not None:
                use = self.measured.use if sees == ONE else None
                rows.append(
                    {"sent": f"the filter, {sees}", "secret": found.balanced, "low": found.low,
                     "high": found.high, "use": use, "attacker": found.attacker}
                )  # fmt: skip
        return rows

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        attacks: Sequence[FilterAttack] = () if self.measured is None else self.measured.attacks
        return {
            "verdict": str(self.verdict),
            "data": self.data,
            "claims": None if self.claims is None else self.claims.row(),
            "checks": [one.row() for one in self.checks],
            "certified": [asdict(one) for one in self.certified],
            "table": self.table(),
            "dominated": self.dominated,
            "use": None if self.measured is None else self.measured.use,
            "attacks": [one.row() for one in attacks],
            "strongest": strongest(attacks).row() if attacks else None,
        }


def _use_of_codes(target: FilterTarget, effort: Effort) -> float | None:
    """Share of uses that the kernels of known codes read from one noisy code."""
    if not has_answers(target.test):
        return None
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    known = target.clean_codes(target.known)
    if not target.affine:
        return _use_of_releases(target, effort)
    fitted = facing(LikelihoodAttacker(), target, 1.0).fit(known, target.seed)
    hot = torch.nn.functional.one_hot(known.utility, known.utility_classes).float()
    shown = target.codes(test, target.seed + 3)
    answers = fitted.of(shown.records, hot).argmax(-1)
    return float((answers == shown.utility).double().mean())


def _use_of_releases(target: FilterTarget, effort: Effort) -> float | None:
    """Share of uses that a fresh network reads from one release; of series 1 − NE."""
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    sent = target.sent(test, target.seed + 3)
    if not has_answers(test):
        return None if test.utility_classes > 1 else _closeness(test.records, sent.records)
    known = target.sent(target.known.take(slice(0, effort.images)), target.seed + 4)
    read: Callable[..., nn.Module] = read_images if len(test.shape) == 3 else read_points
    net = read(known, effort.network_steps, target.seed)
    return accuracy(net, sent.records, sent.utility)


def _closeness(raw: Tensor, sent: Tensor) -> float:
    found = 1 - float((raw - sent).square().mean() / raw.square().mean())
    return found if math.isfinite(found) else -math.inf


def control_of(controls: Sequence[Control], sent: str = TRUE_USE) -> float | None:
    """What a control tells of the secret; None where there is no such one."""
    return next((one.secret for one in controls if one.sent == sent), None)


def gate(
    target: FilterTarget,
    structure: Sequence[Check],
    claims: Claims | None,
    data: str,
    effort: Effort,
    measured: Measured,
    tell: Tell = lambda _: None,
) -> GateReport:
    """Hold what was looked up and read against the claims, beside what no filter would give.

    Args:
        target: the filter with the records that it is attacked with.
        structure: what was looked up before.
        claims: of its file.
        data: the source's name, without its path.
        effort: how hard attackers, and the network that answers, try.
        measured: what attackers read.
        tell: is told how far it is.
    """
    tell("a network answers raw records: what sending the answer alone would give ...")
    steps = min(STEPS, 2 * effort.network_steps)
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    controls = read_controls(target.known, test, target.seed, steps=steps)
    checks = [*structure, *check_claims(claims, measured)]
    promised = _certified(target.filter, target.test)
    return GateReport(data, claims, tuple(checks), tuple(controls), measured, promised)


def _certified(filter_: nn.Module, test: PrivateData) -> tuple[Certified, ...]:
    radius = radius_of_codes(filter_)
    if radius is None:
        return ()
    counts = torch.bincount(test.sensitive.flatten(), minlength=2).double()
    shares = (counts[counts > 0] / counts.sum()).tolist()
    return tuple(certified(radius, int(filter_.coded), shares if len(shares) > 1 else ()))  # type: ignore[arg-type]
