"""The blind test: pictures of both sides without their names; is the difference seen?"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

TRIALS = 20
SHOWN = 12


def p_value(chosen: int, trials: int) -> float:
    """Two-sided p of so many choices of one side, where each is a fair coin's.

    Args:
        chosen: how often the one side was chosen, 0 to ``trials``.
        trials: how many choices there were.
    """
    far = max(chosen, trials - chosen)
    tail = sum(math.comb(trials, k) for k in range(far, trials + 1))
    return min(1.0, 2 * tail / math.pow(2, trials))


@dataclass
class BlindTest:
    """A series of trials; each shows samples of one side left, of the other right."""

    seed: int
    chosen_b: list[bool] = field(default_factory=list)
    """For each trial whether B's pictures were called the faulty ones."""

    @property
    def number(self) -> int:
        """Of the trial under way, from 0."""
        return len(self.chosen_b)

    @property
    def over(self) -> bool:
        """Whether all trials are done."""
        return self.number >= TRIALS

    def b_is_left(self) -> bool:
        """On which side this trial shows B: a coin that the person cannot see."""
        return random.Random(f"{self.seed}/{self.number}").random() < 0.5  # noqa: S311

    def drawn(self, count: int) -> tuple[list[int], list[int]]:
        """Places of this trial's samples among the first ``count`` of A and of B."""
        coin = random.Random(f"{self.seed}/{self.number}/samples")  # noqa: S311
        size = min(SHOWN, count)
        return coin.sample(range(count), size), coin.sample(range(count), size)

    def choose(self, *, left: bool) -> None:
        """Take the person's answer: the left or the right pictures are the faulty ones."""
        if not self.over:
            self.chosen_b.append(left == self.b_is_left())

    def verdict(self) -> str:
        """What the answers say."""
        times, trials = sum(self.chosen_b), len(self.chosen_b)
        p = p_value(times, trials)
        said = f"B was called the faulty one in {times} of {trials} trials (p = {p:.2g})."
        if p >= 0.05:
            return f"{said} That is within chance: no difference was seen."
        side = "B" if times * 2 > trials else "A"
        return f"{said} The difference is seen, and {side} is taken for the faulty one."
