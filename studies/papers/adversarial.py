"""How the studies' filters are trained against an adversary that reads what they release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client.datasets.attributes.data import PrivateData
from privatizers.information import ADVERSARY
from privatizers.protocol import Privatizer
from privatizers.training import Stage, train_privatizer


def train_against(
    method: Privatizer,
    train: PrivateData,
    settings: Any,
    rates: Mapping[str, float],
    *,
    meeting: int,
    seed: int,
) -> None:
    """Train in place: the adversary alone for ``meeting`` steps, then all networks of ``rates``.

    A study's settings have ``steps``, ``adversary_steps`` in each, ``last_rate`` and ``batch``.
    """
    stages = [
        Stage("meeting", {ADVERSARY: rates[ADVERSARY]}, meeting),
        Stage(
            "releasing", dict(rates), settings.steps, settings.adversary_steps,
            last_rate=settings.last_rate, together=True,
        ),
    ]  # fmt: skip
    train_privatizer(method, train, stages, batch=settings.batch, seed=seed)
