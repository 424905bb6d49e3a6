"""What is to be had without a filter: a guess, a record's use alone, and the answer in its place.

A filter keeps a use. Whoever is sent the use and nothing else reads the secret as far as it hangs
on the use, so no filter that keeps all of the use hides it better. Whether it hangs on the use is a
matter of the people: this control is fitted on the population that it is scored on (each tenth of
the test records by the others), where an attacker has to make do with what it learned elsewhere.

And the use can be sent *as the answer*: a device that runs the service's classifier sends what that
says, and no picture. A filter that tells more than that, and keeps less of the use, is dominated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fedlens.privatizers.attacks.attackers.reading_nets import (
    CHUNK,
    read_images,
    read_points,
)
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.private_data import PrivateData

CHANCE, TRUE_USE, ANSWER = "nothing", "the true use alone", "the answer alone"
STEPS = 800
"""Batches of 128 of the network that answers."""
PARTS = 10


@dataclass(frozen=True)
class Control:
    """What is sent in place of a filtered record, and what it gives; shares in [0, 1].

    Attributes:
        sent: in words.
        secret: balanced accuracy of who reads the attribute from it.
        low: of its 95% interval.
        high: of it.
        use: share of uses that it gives right; None for none.
    """

    sent: str
    secret: float
    low: float
    high: float
    use: float | None

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def has_answers(data: PrivateData) -> bool:
    """Whether a record has one use of several, and one attribute: what an answer can stand for."""
    return data.utility_classes > 1 and data.utility.ndim == 1 and data.sensitive.ndim == 1


def read_controls(
    known: PrivateData,
    test: PrivateData,
    seed: int,
    *,
    steps: int = STEPS,
    answers: Tensor | None = None,
) -> list[Control]:
    """Chance, and, where records have a use, that use and a network's answer in its place.

    Args:
        known: raw records that the network learns from.
        test: raw records that all is scored on.
        seed: of network, parts and intervals.
        steps: batches of the network.
        answers: int64 [test], in place of those of a network.
    """
    chance = 1 / test.sensitive_classes
    found = [Control(CHANCE, chance, chance, chance, None)]
    if not has_answers(test):
        return found
    found.append(table_control(TRUE_USE, test.utility, test, seed))
    said = _answers(known, test, steps, seed) if answers is None else answers
    return [*found, table_control(ANSWER, said, test, seed)]


def table_control(sent: str, said: Tensor, test: PrivateData, seed: int) -> Control:
    """Who knows one value of each test record, int64 [n], and P(s | value) of the test's people.

    Never below chance, which nobody falls short of who need not look: where a value tells nothing,
    a tenth's guesses lean to what the other nine have more of, and so that tenth less.
    """
    guesses, chance = known_by_value(said, test, seed), 1 / test.sensitive_classes
    secret, low, high = (max(one, chance) for one in balanced_accuracy(guesses, test, seed))
    return Control(sent, secret, low, high, float((said == test.utility).double().mean()))


def known_by_value(said: Tensor, test: PrivateData, seed: int) -> Tensor:
    """Guesses int64 [n] of the attribute by P(s | value) / P(s), each tenth's by the others."""
    owners = torch.arange(len(test)) if test.owners is None else test.owners
    _, who = torch.unique(owners, return_inverse=True)
    order = torch.randperm(int(who.max()) + 1, generator=torch.Generator().manual_seed(seed))
    part_of, values = order[who] % PARTS, int(said.max()) + 1
    guesses = torch.zeros(len(test), dtype=torch.int64)
    cells = said * test.sensitive_classes + test.sensitive
    for part in range(PARTS):
        mine = part_of == part
        counts = torch.bincount(cells[~mine], minlength=values * test.sensitive_classes)
        table = counts.view(values, -1).double()
        fair = table / table.sum(0, keepdim=True).clamp_min(1)
        guesses[mine] = fair.argmax(1)[said[mine]]
    return guesses


def dominated(secret: float, use: float | None, answer: Control | None) -> bool:
    """Whether the answer gives at least as much of the use and tells no more of the secret."""
    if answer is None or answer.use is None or use is None:
        return False
    return answer.use >= use and answer.secret <= secret


def _answers(known: PrivateData, test: PrivateData, steps: int, seed: int) -> Tensor:
    """The likeliest use of each raw test record, int64 [n], by a network of raw known records."""
    read: Callable[..., torch.nn.Module] = read_images if len(test.shape) == 3 else read_points
    net = read(known, steps, seed)
    with torch.no_grad():
        return torch.cat([net(part).argmax(-1) for part in torch.split(test.records, CHUNK)])
