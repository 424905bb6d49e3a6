"""What samples are good for, in a word: the verdict that stands with every sheet, queue and export.

It is made of noised sums alone. Where its bounds lie was found by runs over data sets whose real
images could be looked at: see "what a run is worth" in the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

Worth = Literal["clear", "usable for statistics", "noise", "not judged"]
RECOGNISED = "recognised"
"""Key of how far an annotator recognises samples, beside signals by class."""
NOISE_BELOW = 0.35
"""Mean signal below which samples are ``noise``."""
CLEAR_FROM = 0.26
"""Fidelity from which they are ``clear``."""


def worth_of(fidelity: Mapping[str, float]) -> Worth:
    """The verdict; ``not judged`` where nothing is known.

    Args:
        fidelity: as `fedlens.store.BatchRecord.fidelity`.
    """
    if not fidelity.keys() - {RECOGNISED}:
        return "not judged"
    if signal_of(fidelity) < NOISE_BELOW:
        return "noise"
    return "clear" if figure_of(fidelity) >= CLEAR_FROM else "usable for statistics"


def signal_of(fidelity: Mapping[str, float]) -> float:
    """Mean over classes of what was learned of them and is no noise, from 0 to 1."""
    return fmean(share for name, share in fidelity.items() if name != RECOGNISED)


def figure_of(fidelity: Mapping[str, float]) -> float:
    """From 0 to 1: the signal, times what an annotator recognises of it; 0 without one."""
    return signal_of(fidelity) * fidelity.get(RECOGNISED, 0.0)
