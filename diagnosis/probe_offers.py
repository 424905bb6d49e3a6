"""The probe that would confirm a finding of a diagnosis, with its price: for pages and commands.

A finding names a fault. If its users' records are recognised better once the fault is undone, or
are no longer changed by it, the fault is there, whatever else could have moved the released sums.
Nothing here looks at data, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import quote

from fedlens.accountant.ledger.population import Population
from fedlens.accountant.probing import ProbePrice, price_of

EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""What an offer may cost; the least that tells the share well enough is offered."""
WITHIN = 0.03
"""Half of the 95% interval that is well enough."""

Undoing = tuple[str, Callable[[float], float]]


def _same(amount: float) -> float:
    return amount


def _other_way(amount: float) -> float:
    return -amount


def _inverse(amount: float) -> float:
    return round(1 / amount, 4)


UNDONE_BY: dict[str, Undoing] = {
    "rotate90": ("rotate270", _same),
    "rotate180": ("rotate180", _same),
    "rotate270": ("rotate90", _same),
    "mirror": ("mirror", _same),
    "upside_down": ("upside_down", _same),
    "invert": ("invert", _same),
    "swap_channels": ("swap_channels", _same),
    "tilt": ("tilt", _other_way),
    "shift_right": ("shift_right", _other_way),
    "shift_down": ("shift_down", _other_way),
    "shift_labels": ("shift_labels", _other_way),
    "swap_labels": ("swap_labels", _same),
    "scale": ("scale", _inverse),
    "dim": ("dim", _inverse),
    "gamma": ("gamma", _inverse),
    "saturation": ("saturation", _inverse),
    "blur": ("sharpen", lambda _: 2.0),
    "sharpen": ("blur", lambda _: 3.0),
    "noise": ("blur", lambda _: 3.0),
}
"""What undoes a fault, or comes near to it, and the amount of it."""
WITHOUT_AMOUNT = frozenset(name for name, (_, turned) in UNDONE_BY.items() if turned is _same)
LEAVE_NOTHING = ("crop", "quantise", "stuck_column", "stuck_row", "occlude")
"""Faults that change nothing more where they are already."""


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


def probe_for(
    fault: str, amount: float | None = None, classes: Sequence[int] = (), total: int = 0
) -> str:
    """The question that would confirm a fault; empty where the library has none.

    Args:
        fault: its name in the library.
        amount: in its own measure, where it has one.
        classes: where it shows.
        total: number of classes of the data; a fault in all of them is asked of all.
    """
    some = "" if len(classes) >= total else ":classes=" + ",".join(map(str, classes))
    if fault in UNDONE_BY:
        name, turned = UNDONE_BY[fault]
        strength = "" if name in WITHOUT_AMOUNT or amount is None else turned(amount)
        by = "" if strength == "" else f":amount={strength:g}"
        labels = fault == "shift_labels"
        return f"better_after:{name}{'' if labels else some}{by}"
    if fault in LEAVE_NOTHING:
        return f"unchanged:{fault}" + ("" if amount is None else f":amount={amount:g}")
    if fault == "missing_class" and classes:
        return f"lacks_label:{classes[0]}"
    if fault == "frequent_class" and classes:
        return f"label_share:{classes[0]}"
    alone = {"duplicates": "repeats", "random_labels": "confidence", "new_class": "confidence"}
    return alone.get(fault, "")


def probe_offer(
    fault: str,
    *,
    users: int,
    delta: float,
    amount: float | None = None,
    classes: Sequence[int] = (),
    total: int = 0,
    population: Population | None = None,
    asked: str = "",
    within: float = WITHIN,
) -> ProbeOffer | None:
    """The cheapest probe that confirms a fault and tells its share well enough.

    Args:
        fault: the finding's name in the library.
        users: N, who would be asked.
        delta: δ of its price: the population's, or the run's.
        amount: the finding's.
        classes: the finding's.
        total: number of classes of the data.
        population: whose budget pays, if any; its refusal is in the price.
        asked: slice of the population that is asked.
        within: half of the 95% interval that is wanted.

    Returns:
        None where no probe of the library would confirm it.
    """
    text = probe_for(fault, amount, classes, total)
    if not text:
        return None
    for epsilon in EPSILONS:
        price = price_of(epsilon, delta, users, population=population, asked=asked)
        if price.half_width <= within:
            break
    return ProbeOffer(text, price)
