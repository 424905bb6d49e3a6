"""What an attacker is: something fitted on released records that then guesses the attribute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedlens.privatizers.private_data import PrivateData, PrivateDataError

# What an attacker knows of the filter besides what it releases; every table says it.


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


LEAST = 1e-4
"""Share of a guess that is spread over all classes, so that none is ever called impossible."""


class AttackError(PrivateDataError):
    """Records or attributes that no attacker can be fitted on; the message says the fix."""


class FittedAttacker(Protocol):
    """An attacker after its training."""

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """What it believes of each sensitive attribute: log-probabilities, float64 [n, classes].

        [n, T, classes] where it was fitted on a sensitive attribute for each step of a series.
        Rows sum to 1
        as probabilities and none is below `LEAST` / classes, so cross-entropies are finite.
        """
        ...


class Attacker(Protocol):
    """A way to learn the sensitive attribute from released records.

    One that is fitted with equal arguments on one thread is the same to the bit; nothing is drawn
    from a global generator.
    """

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn from released records.

        Args:
            known: records as the filter releases them, with the sensitive attribute of each (or of
                each step of a series) and what the attacker also knows.
            seed: decides starts and batches.

        Raises:
            AttackError: when shapes do not fit or there is nothing to tell apart.
        """
        ...


def check_known(known: PrivateData) -> None:
    """Refuse records of which nothing can be learned.

    Raises:
        AttackError: attributes of steps do not fit the series, or there is one class only.
    """
    sensitive, shape = known.sensitive, known.shape
    if sensitive.ndim == 2 and (len(shape) != 2 or shape[0] != sensitive.shape[1]):
        raise AttackError(
            f"sensitive attributes of {sensitive.shape[1]} steps for records {shape}; "
            "give series [n, T, channels] with as many steps"
        )
    if int(sensitive.min()) == int(sensitive.max()):
        raise AttackError(
            f"the sensitive attribute of every record is {int(sensitive.min())}; give records of "
            "at least two classes"
        )


def cautious(probabilities: Tensor) -> Tensor:
    """Log-probabilities float64, with `LEAST` of each row spread over its classes."""
    wide = probabilities.double()
    wide = wide / wide.sum(-1, keepdim=True)
    return ((1 - LEAST) * wide + LEAST / wide.shape[-1]).log()
