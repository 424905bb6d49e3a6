"""What a run's samples hint at by themselves, where there is nothing to compare them with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.api.runs import Run, open_run
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from torch import Tensor

    from fedlens.diagnosis.unreferenced import UnreferencedHints

SAMPLES = 1000
"""Faithful samples that are looked at."""


def hints(
    run: Run | Path | str, *, sound: Run | Path | str | None = None, count: int = SAMPLES
) -> UnreferencedHints:
    """Name the family of faults that a run's faithful samples show by themselves, if any.

    Post-processing of samples: it costs no privacy. A hint, no finding: a probe confirms it. See
    `fedlens.diagnosis.unreferenced` for what it can tell and what not.

    Args:
        run: the run, or its directory.
        sound: a run over the same kind of data that is known to be sound, to learn how many votes
            such data gives. None: the levels of handwritten digits, which say little of others.
        count: faithful samples that are drawn.

    Raises:
        WrongUse: ``count`` is too small for the run's classes.
        FedlensError: there is no such run, or it has no faithful samples.
    """
    from fedlens.diagnosis.unreferenced import levels_of, unreferenced

    if count < 1:
        raise WrongUse(f"count {count}: give at least 1")
    levels = None if sound is None else levels_of(*_faithful(sound, count))
    return unreferenced(*_faithful(run, count), levels)


def _faithful(run: Run | Path | str, count: int) -> tuple[Tensor, Tensor]:
    """As float32 [n, c, h, w] in [-1, 1], and int64 [n]."""
    import torch

    from fedlens.models.shapes import from_pixels

    chosen = run if isinstance(run, Run) else open_run(run)
    made = chosen.draw(count, purpose="faithful", seed=chosen.config.seed)
    return from_pixels(made.images), torch.as_tensor(made.labels)
