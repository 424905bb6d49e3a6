"""What samples are good for, in a word: the verdict that stands with every sheet, queue and export.

A batch's fidelity is a figure from 0 to 1 by class, made of noised sums alone; see
`fedlens.server.learning.fidelity`. Where the verdicts part was calibrated on runs over data sets
whose real images could be looked at: see "what a run is worth" in the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

Worth = Literal["clear", "usable for statistics", "noise", "not judged"]
CLEAR_FROM, NOISE_BELOW = 0.5, 0.15
"""Mean fidelity from which samples are ``clear``, and below which they are ``noise``."""


def worth_of(fidelity: Mapping[str, float]) -> Worth:
    """The verdict on samples of this fidelity by class; ``not judged`` where there is none."""
    if not fidelity:
        return "not judged"
    mean = fmean(fidelity.values())
    if mean < NOISE_BELOW:
        return "noise"
    return "clear" if mean >= CLEAR_FROM else "usable for statistics"
