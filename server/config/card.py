"""The settings of a data card, a task that asks what users' pictures are like."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from fedlens.foundation.errors import WrongUse
from fedlens.server.config import needs
from fedlens.server.config.section import NoiseMultiplier, Positive
from fedlens.server.config.tasks import TaskConfig, TaskKind


def _expected(value: str) -> str:
    from fedlens.models.cards.expectations import parse_expectations  # brings PyTorch

    try:
        parse_expectations(value)
    except WrongUse as error:
        raise ValueError(str(error)) from None
    return value


class CardConfig(TaskConfig):
    """A data card: histograms of what users' pictures are like, as one noised sum.

    It needs no label, and nothing needs it: its sums say by themselves what people know from data
    profilers. User mode alone.
    """

    provides = frozenset({needs.CARD})
    of_all_users = True

    kind: Literal["card"] = "card"
    noise_multiplier: NoiseMultiplier = 11.3
    clipping_norm: Positive = 2.52
    """C: L2 bound of a user's histograms together. None reaches 2.52 (2.42 without labels), so none
    is cut by it: those of pictures are cut to 2 together before."""
    expect: Annotated[str, AfterValidator(_expected)] = ""
    """What is expected of the data, such as ``classes = uniform, duplicates < 2%``; `fedlens card`
    says of each whether it holds, and its exit status does. Empty: nothing."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return "data card"

    @property
    def positive(self) -> bool:
        """Histograms have no number below 0."""
        return True


CARD = TaskKind(CardConfig, "fedlens.server.tasks.card:CardTask")
