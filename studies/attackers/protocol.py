"""What an attacker is: something fitted on released records that then guesses the secret."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from client.datasets.attributes.data import PrivateDataError

LEAST = 1e-4
"""Share of a guess that is spread over all classes, so that none is ever called impossible."""


class AttackError(PrivateDataError):
    """Records or secrets that no attacker can be fitted on; the message says the mend."""


class FittedAttacker(Protocol):
    """An attacker after its training."""

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """What it believes of each secret: log-probabilities, float64 [n, classes].

        [n, T, classes] where it was fitted on a secret for each step of a series. Rows sum to 1
        as probabilities and none is below `LEAST` / classes, so cross-entropies are finite.
        """
        ...


class Attacker(Protocol):
    """A way to learn the secret from released records.

    One that is fitted with equal arguments on one thread is the same to the bit; nothing is drawn
    from a global generator.
    """

    def fit(
        self,
        records: Tensor,
        sensitive: Tensor,
        side: Tensor | None,
        seed: int,
        *,
        classes: int | None = None,
    ) -> FittedAttacker:
        """Learn from released ``records``.

        Args:
            records: float32 [n, ...], as the filter releases them.
            sensitive: int64 [n], or [n, T] for a secret of each step of a series [n, T, channels].
            side: float32 [n, k] or [n, T, k], what the attacker also knows; None: nothing.
            seed: decides starts and batches.
            classes: number of classes; None: one more than the largest in ``secret``.

        Raises:
            AttackError: when shapes do not fit or there is nothing to tell apart.
        """
        ...


def count_classes(
    records: Tensor, sensitive: Tensor, side: Tensor | None, classes: int | None
) -> int:
    """The number of classes, once records, secrets and side information were found to fit.

    Raises:
        AttackError: when they do not.
    """
    if len(records) != len(sensitive) or (side is not None and len(side) != len(records)):
        given = "none" if side is None else str(len(side))
        raise AttackError(
            f"{len(records)} records, {len(sensitive)} secrets and {given} rows of side "
            "information; give one of each a record"
        )
    if len(records) == 0 or not bool(torch.isfinite(records).all()):
        raise AttackError(f"{len(records)} records, or some not finite; give finite ones")
    if sensitive.ndim == 2 and (records.ndim != 3 or records.shape[1] != sensitive.shape[1]):
        raise AttackError(
            f"secrets of {sensitive.shape[1]} steps for records {tuple(records.shape[1:])}; "
            "give series [n, T, channels] with as many steps"
        )
    least, most = int(sensitive.min()), int(sensitive.max())
    found = most + 1 if classes is None else classes
    if least == most or least < 0 or most >= found:
        raise AttackError(
            f"secrets run from {least} to {most} with {found} classes; there must be two classes "
            "at least among the records, all below the number of classes"
        )
    return found


def cautious(probabilities: Tensor) -> Tensor:
    """Log-probabilities float64, with `LEAST` of each row spread over its classes."""
    wide = probabilities.double()
    wide = wide / wide.sum(-1, keepdim=True)
    return ((1 - LEAST) * wide + LEAST / wide.shape[-1]).log()
