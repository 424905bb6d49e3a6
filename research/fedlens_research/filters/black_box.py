"""The provider's network as a black box: only its answers are known.

Mireshghallah et al. 2021, section 3.6.

A substitute of any architecture learns to answer as the provider does; Cloak is then trained on the
substitute, and used with the provider. The provider is shown training records, as it is when
nothing is filtered, and what filters, trained or drawn at random, make of them.

A substitute that knows the provider's answers on raw records alone is soon led astray: the filter
learns constants to which only the substitute answers well. So the provider is asked about more:

- about records behind masks drawn at random, before there is a filter and while it learns
  (:class:`Explorer`): what the substitute is worth is how its answers change when the filter does;
- about what the filter releases at the moment, while it learns (:class:`Follower`), as those who
  copy a network from its answers do (Papernot et al. 2017, arXiv:1602.02697).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.protocol import PrivatizerError

Answers = Callable[[Tensor], Tensor]
"""What a provider gives for records [n, ...]: class numbers int64 [n], or probabilities float
[n, classes]."""

Exploring = Callable[[int], tuple[Tensor, Tensor]]
"""That many records that were not asked about yet, with the provider's answers."""

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


class Explorer:
    """Asks the provider about records behind masks drawn at random, each time about others.

    Args:
        provider: what is asked.
        records: float32 [n, ...], training records.
        vary: what becomes of them, say `fedlens_research.filters.variations.Variations`.
        generator: CPU generator of records and of what ``vary`` draws.

    Raises:
        PrivatizerError: there is no record.
    """

    def __init__(
        self,
        provider: Answers,
        records: Tensor,
        vary: Callable[[Tensor, torch.Generator], Tensor],
        generator: torch.Generator,
    ) -> None:
        if not len(records):
            raise PrivatizerError("there is no record to vary; give at least one")
        self._provider, self._records, self._vary = provider, records, vary
        self._generator = generator

    def __call__(self, count: int) -> tuple[Tensor, Tensor]:
        """``count`` varied records and the provider's answers on them."""
        rows = torch.randint(len(self._records), (count,), generator=self._generator)
        varied = self._vary(self._records[rows], self._generator)
        return varied, ask(self._provider, varied)


def train_substitute(
    substitute: nn.Module,
    records: Tensor,
    answers: Tensor,
    *,
    steps: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
    explore: Exploring | None = None,
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
        explore: gives as many more records a step, with fresh answers.

    Returns:
        Share of the last tenth of the records, as they are, where both agree. It did not learn from
        these; ``explore`` may have shown it what became of them behind masks.

    Raises:
        PrivatizerError: when there are fewer than 10 records, or not one answer for each, or what
            ``explore`` gives is of another kind.
    """
    if len(records) != len(answers) or len(records) < 10:
        raise PrivatizerError(
            f"{len(records)} records and {len(answers)} answers; give as many of both, at least 10"
        )
    known = len(records) - len(records) // 10

    def minibatch() -> tuple[Tensor, Tensor]:
        rows = torch.randint(known, (batch,), generator=generator)
        return _with_more(records[rows], answers[rows], explore, batch)

    _teach(substitute, minibatch, steps, rate)
    return _agreement(substitute, records[known:], answers[known:])


def _with_more(
    records: Tensor, answers: Tensor, explore: Exploring | None, count: int
) -> tuple[Tensor, Tensor]:
    if explore is None:
        return records, answers
    others, theirs = explore(count)
    if theirs.dtype != answers.dtype or theirs.shape[1:] != answers.shape[1:]:
        raise PrivatizerError(
            f"answers are {answers.dtype} {tuple(answers.shape[1:])}, of varied records "
            f"{theirs.dtype} {tuple(theirs.shape[1:])}; ask both in one way"
        )
    return torch.cat([records, others]), torch.cat([answers, theirs])


def _teach(
    substitute: nn.Module, minibatch: Callable[[], tuple[Tensor, Tensor]], steps: int, rate: float
) -> None:
    """Adam on the cross-entropy with a rate that falls to 0; the substitute ends frozen."""
    substitute.requires_grad_(True).train()
    optimiser = torch.optim.Adam(substitute.parameters(), lr=rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        records, answers = minibatch()
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(substitute(records), answers))
        optimiser.step()
    substitute.requires_grad_(False).eval()


class Follower:
    """Keeps a substitute close to a provider on what a changing filter releases.

    Each call asks the provider about freshly filtered records and teaches the substitute on these
    answers, on those of some calls before, and on raw records.

    Args:
        substitute: learns in place, and is frozen between calls.
        provider: what is asked.
        records: float32 [n, ...], training records.
        answers: the provider's on them.
        queries: records that it is asked about each time.
        memory: times whose answers are remembered.
        steps: of the substitute each time.
        batch: of a step: a quarter raw records, the others filtered ones.
        rate: Adam's at the start of each time.
        generator: CPU generator of records, noise and batches.
        explore: gives as many more records a step as raw ones, with fresh answers.

    Raises:
        PrivatizerError: a number is below 1, or there is not one answer for each record.
    """

    def __init__(
        self,
        substitute: nn.Module,
        provider: Answers,
        records: Tensor,
        answers: Tensor,
        *,
        queries: int,
        steps: int,
        generator: torch.Generator,
        memory: int = 6,
        batch: int = 128,
        rate: float = 1e-3,
        explore: Exploring | None = None,
    ) -> None:
        if min(queries, steps, memory) < 1 or batch < 4 or len(records) != len(answers):
            raise PrivatizerError(
                f"queries={queries}, steps={steps}, memory={memory}: at least 1; batch={batch}: at "
                f"least 4; {len(answers)} answers on {len(records)} records: as many of both"
            )
        self._substitute, self._provider = substitute, provider
        self._records, self._answers = records, answers
        self._queries, self._steps, self._batch, self._rate = queries, steps, batch, rate
        self._generator, self._explore = generator, explore
        self._met: deque[tuple[Tensor, Tensor]] = deque(maxlen=memory)

    def __call__(self, filter_: nn.Module) -> None:
        """Ask about what ``filter_`` releases now, and learn."""
        self._met.append(self._asked(filter_))
        released, theirs = (torch.cat(parts) for parts in zip(*self._met, strict=True))
        raw = self._batch // 4

        def minibatch() -> tuple[Tensor, Tensor]:
            some, others = self._drawn(self._records, raw), self._drawn(released, self._batch - raw)
            shown = torch.cat([self._records[some], released[others]])
            said = torch.cat([self._answers[some], theirs[others]])
            return _with_more(shown, said, self._explore, raw)

        _teach(self._substitute, minibatch, self._steps, self._rate)

    @torch.no_grad()
    def _asked(self, filter_: nn.Module) -> tuple[Tensor, Tensor]:
        records = self._records[self._drawn(self._records, self._queries)]
        noise = torch.randn(len(records), *noise_shape_of(filter_), generator=self._generator)
        released = filter_(records, noise)
        return released, ask(self._provider, released)

    def _drawn(self, records: Tensor, count: int) -> Tensor:
        return torch.randint(len(records), (count,), generator=self._generator)


@torch.no_grad()
def _agreement(substitute: nn.Module, records: Tensor, answers: Tensor) -> float:
    said = torch.cat([substitute(part).argmax(1) for part in torch.split(records, CHUNK)])
    theirs = answers if answers.ndim == 1 else answers.argmax(1)
    return float((said == theirs).double().mean())
