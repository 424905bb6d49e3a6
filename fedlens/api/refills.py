"""More samples of one class for the queues of annotators, drawn from a run's kept generator."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.runs import Run

MOST = 10_000


def refill(run: Run, requested: int, count: int) -> int:
    """Draw samples of a class and add them to the run's curated batches; give back how many.

    Post-processing of what the run has released: its privacy figures are the last release's, and
    nothing is added to them. Queues serve the samples from their next request on.

    Args:
        run: with a kept generator.
        requested: class to ask for.
        count: 1 to 10,000.

    Raises:
        WrongUse: no such class, or a count out of range.
        FedlensError: the run kept no generator, or has no curated samples to take the figures from.
    """
    from dataclasses import fields, replace

    import torch

    from fedlens.server.round.publication import sample_records
    from fedlens.server.run.directory import RunDirectoryError
    from fedlens.simulations.run_artifacts import kept_sampler
    from fedlens.store import BatchRecord, open_store

    if not 1 <= count <= MOST:
        raise WrongUse(f"--count {count}: give 1 to {MOST}")
    sampler = kept_sampler(run.directory)
    if not 0 <= requested < sampler.shown_classes:
        raise WrongUse(f"--class {requested}: the run has classes 0 to {sampler.shown_classes - 1}")
    seed = secrets.randbelow(2**31)
    labels = torch.full((count,), requested)
    drawn = sampler.judged(sampler.asked(labels, seed), seed)
    with open_store(run.store) as store:
        made = [b for b in store.batches(run.id) if b.purpose == "curated"]
        if not made:
            raise RunDirectoryError(f"{run.path} has no curated samples in its store yet")
        last = BatchRecord(**{f.name: getattr(made[-1], f.name) for f in fields(BatchRecord)})
        rejected = drawn.rejected(labels) if sampler.filters else {}
        batch = replace(last, seed=seed, count=count, rejected=rejected)
        store.add_batch(batch, sample_records(labels, drawn))
        store.log("command line", "drew samples", f"{count} of class {requested}, run {run.id}")
    return count
