"""What an attacker knows of the filter besides what it releases; every table says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knowledge:
    """Of a filter. Releases and labelled records are counted where an attack is carried out."""

    weights: bool = False  # the filter's numbers: every device carries them
    noise_law: bool = False  # how its noise is drawn, so that more can be drawn
    # the noisy code itself, which the release is computed from: no attacker has it, and none that
    # has a release can do better (data processing)
    code: bool = False

    @property
    def words(self) -> str:
        """As tables print it."""
        if self.code:
            return "the code, weights, noise law"
        known = [("weights", self.weights), ("noise law", self.noise_law)]
        return ", ".join(["release", *(word for word, is_known in known if is_known)])


RELEASE = Knowledge()
"""Sees what is released, and learns from labelled releases."""
WEIGHTS = Knowledge(weights=True, noise_law=True)
EVERYTHING = Knowledge(weights=True, noise_law=True, code=True)


def knowledge_of(attacker: object) -> Knowledge:
    """What an attacker declares as ``knows``; of one that declares nothing, the release."""
    found = getattr(attacker, "knows", RELEASE)
    return found if isinstance(found, Knowledge) else RELEASE
