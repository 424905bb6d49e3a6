"""Faults as they are written down, such as ``rotate90:0.3`` or ``tilt:0.1:amount=-15``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedlens.foundation.errors import WrongUse
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import Fault, FaultSetting

SOUND = -1
"""In the place of a fault's number, of a user who has none."""
_WHO = 7
"""Stream of the run's seed that says which users have a fault."""
FORM = (
    "write NAME:SHARE, such as rotate90:0.3, then :classes=1,7, :amount=20 or "
    ":slice=app_version=2.0 where wanted"
)


@dataclass(frozen=True)
class PlantedFault:
    """A fault in a share of a simulation's users."""

    fault: Fault
    share: float
    """Of users, in (0, 1]."""
    chosen: tuple[int, ...] = ()
    amount: float = 0.0
    users: str = ""
    """Slice of which ``share`` is a share, ``attribute=value``; empty for all users."""

    def setting(self, classes: int, seed: int) -> FaultSetting:
        """How it is carried out on one user's records."""
        return FaultSetting(classes, self.chosen, self.amount, seed)

    def check(self, shape: tuple[int, int, int], classes: int) -> None:
        """Refuse what cannot be seen in such data.

        Raises:
            WrongUse: it is about classes that there are not, or about colours of grey images.
        """
        name = self.fault.name
        if unknown := [c for c in self.chosen if c >= classes]:
            raise WrongUse(
                f"fault {name!r}: there is no class {unknown[0]}; classes run from 0 to "
                f"{classes - 1}"
            )
        if self.fault.colours and shape[0] == 1:
            raise WrongUse(
                f"fault {name!r} changes colours and these images are grey: take another"
            )


def parse_faults(text: str) -> tuple[PlantedFault, ...]:
    """The faults in a text that separates them by spaces; none of an empty one.

    Raises:
        WrongUse: one is written in another form, unknown, or their shares add up to more than 1.
    """
    planted = tuple(_parsed(word) for word in text.split())
    everywhere = sum(one.share for one in planted if not one.users)
    in_slices = Counter[str]()
    for one in planted:
        if one.users:
            in_slices[one.users] += one.share  # type: ignore[assignment]
    if everywhere + max(in_slices.values(), default=0) > 1 + 1e-9:
        raise WrongUse(f"faults {text!r}: a user has one fault, so shares add up to 1 at most")
    return planted


def parse_transformation(text: str, what: str, form: str) -> PlantedFault:
    """What a fault does to records, in a text without the share of users: ``tilt:amount=-20``.

    Args:
        text: the fault's name and what stands behind it.
        what: the argument that it is of, as messages begin.
        form: how to write it, as messages end.

    Raises:
        WrongUse: it is written in another form, or unknown.
    """
    name, *parts = text.split(":")
    return _with_parts(_Words(what, form), PlantedFault(FAULTS[name], 1.0), parts)


@dataclass(frozen=True)
class _Words:
    """What is wrong with a text, said of the argument that it was given as."""

    what: str
    form: str

    def number(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise WrongUse(f"{self.what}: {text!r} is no number; {self.form}")
        return number


def _parsed(word: str) -> PlantedFault:
    name, *rest = word.split(":")
    words = _Words(f"fault {word!r}", FORM)
    if not rest:
        raise WrongUse(f"{words.what}: {FORM}")
    fault, share = FAULTS[name], words.number(rest[0])
    if not 0 < share <= 1:
        raise WrongUse(f"{words.what}: the share of users must be above 0 and at most 1")
    users = [part for part in rest[1:] if part.startswith("slice=") and "=" in part[6:]]
    parts = [part for part in rest[1:] if part not in users]
    planted = _with_parts(words, PlantedFault(fault, share), parts)
    return replace(planted, users=users[-1][6:]) if users else planted


def _with_parts(words: _Words, planted: PlantedFault, parts: list[str]) -> PlantedFault:
    """It with its classes and its amount."""
    fault = planted.fault
    chosen: tuple[int, ...] = ()
    amount = fault.amounts[0]
    for part in parts:
        key, _, value = part.partition("=")
        if key == "classes":
            chosen = tuple(int(words.number(digit)) for digit in value.split(","))
        elif key == "amount" and fault.measure:
            amount = words.number(value)
        else:
            raise WrongUse(f"{words.what}: {part!r} is not understood; {words.form}")
    _check_classes(words.what, fault, chosen)
    return replace(planted, chosen=chosen, amount=amount)


def _check_classes(what: str, fault: Fault, chosen: tuple[int, ...]) -> None:
    needed = {"any": None, "class": 1, "pair": 2}[fault.takes]
    if needed is not None and len(set(chosen)) != needed:
        example = ",".join(str(number) for number in range(1, needed + 1))
        raise WrongUse(f"{what}: name {needed} class(es), such as :classes={example}")
    if min(chosen, default=0) < 0:
        raise WrongUse(f"{what}: classes are numbers from 0")
    if fault.takes == "any" and fault.kind == "label" and chosen:
        raise WrongUse(f"{what} is about all classes: leave :classes= out")


def faulty_users(
    faults: tuple[PlantedFault, ...],
    users: int,
    seed: int,
    values: Mapping[str, NDArray[np.str_]] | None = None,
) -> NDArray[np.int64]:
    """Which fault each user has, int64 [users], or `SOUND`; each fault's share of users has it.

    Args:
        faults: those of slices take their users first.
        users: how many there are.
        seed: the run's.
        values: [users] by name, each user's value of a declared attribute, for faults of slices.
    """
    found = np.full(users, SOUND)
    order = np.random.default_rng([seed, _WHO]).permutation(users)
    for number, fault in enumerate(faults):
        if fault.users:
            attribute, _, value = fault.users.partition("=")
            own = order[(values or {})[attribute][order] == value]
            free = own[found[own] == SOUND]
            found[free[: round(fault.share * len(own))]] = number
    order = order[found[order] == SOUND]
    everywhere = [number for number, fault in enumerate(faults) if not fault.users]
    shares = [faults[number].share for number in everywhere]
    ends = np.round(np.cumsum([0.0, *shares]) * users).astype(int)
    for number, (first, last) in zip(everywhere, pairwise(ends), strict=True):
        found[order[first:last]] = number
    return found
