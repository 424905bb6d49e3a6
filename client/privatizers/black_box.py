"""The provider's network as a black box (paper 001, section 3.6): only its answers are known.

A substitute of any architecture learns to answer as the provider does; Cloak is then trained on the
substitute, and used with the provider. What the provider is asked are training records: they are
shown to it, as they are when nothing is filtered.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from client.privatizers.protocol import PrivatizerError

Answers = Callable[[Tensor], Tensor]
"""What a provider gives for records [n, ...]: class numbers int64 [n], or probabilities float
[n, classes]."""

CHUNK = 500


@torch.no_grad()
def ask(provider: Answers, records: Tensor) -> Tensor:
    """The provider's answers on records, in their order.

    Raises:
        PrivatizerError: they are neither class numbers nor probabilities.
    """
    answers = torch.cat([provider(part) for part in torch.split(records, CHUNK)])
    if answers.ndim == 1 and answers.dtype == torch.int64:
        return answers
    sums = answers.sum(-1) if answers.ndim == 2 and answers.is_floating_point() else None
    if sums is None or bool((answers < 0).any()) or float((sums - 1).abs().max()) > 1e-3:
        raise PrivatizerError(
            f"the provider answers {answers.dtype} {tuple(answers.shape)}; it must give class "
            "numbers int64 [n] or probabilities [n, classes] (not logits)"
        )
    return answers.float()


def train_substitute(
    substitute: nn.Module,
    records: Tensor,
    answers: Tensor,
    *,
    steps: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
) -> float:
    """Teach ``substitute`` to answer as the provider did, in place; it ends frozen.

    Adam with a rate that falls to 0 along a line, on the cross-entropy with the answers.

    Args:
        substitute: records to logits.
        records: float32 [n, ...], as asked.
        answers: of :func:`ask`.
        steps: of training.
        batch: records a step.
        rate: Adam's at the start.
        generator: CPU generator of the batches.

    Returns:
        Share of the last tenth of the records, which it did not learn from, where both agree.

    Raises:
        PrivatizerError: when there are fewer than 10 records, or not one answer for each.
    """
    if len(records) != len(answers) or len(records) < 10:
        raise PrivatizerError(
            f"{len(records)} records and {len(answers)} answers; give as many of both, at least 10"
        )
    known = len(records) - len(records) // 10
    optimiser = torch.optim.Adam(substitute.parameters(), lr=rate)
    substitute.train()
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        rows = torch.randint(known, (batch,), generator=generator)
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(substitute(records[rows]), answers[rows]))
        optimiser.step()
    substitute.requires_grad_(False).eval()
    return _agreement(substitute, records[known:], answers[known:])


@torch.no_grad()
def _agreement(substitute: nn.Module, records: Tensor, answers: Tensor) -> float:
    said = torch.cat([substitute(part).argmax(1) for part in torch.split(records, CHUNK)])
    theirs = answers if answers.ndim == 1 else answers.argmax(1)
    return float((said == theirs).double().mean())
