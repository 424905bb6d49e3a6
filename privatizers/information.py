"""The information privatizer of Bertran et al. 2019: hide S from q = Q(x, z), keep its utility.

With A = I(U;X|Q) (utility that is lost) and B = I(S;Q) (sensitive information that leaks), in nats,
the filter minimises (1−α)A² + αB² (equation 6, with the square *outside* the mean as in equation
8), or, in the budget form, A + weight · max(B − b, 0)²: lose as little as possible, leak at most b.

    A ≈ mean Σ_u P_φ(u|x) log P_φ(u|x)/P_ψ(u|q)      φ reads U from x, ψ from q
    B ≈ mean log P_η(s|q)/P(s)                       η reads S from q, P(s) is the prior

Algorithm 1 trains φ, ψ, η and the filter; Algorithm 2 takes the provider's fixed network for both φ
and ψ; Algorithm 3 takes a fixed η too. The square of a mean does not decompose over users, so the
filter's loss is 2(1−α)·Â·A + 2α·B̂·B with Â, B̂ constants: the batch's own means, or everybody's of
the round before; its gradient is the objective's.

B takes the sensitive attribute's *label*, not Σ_s P_η(s|q) log P_η(s|q)/P(s): with η held still
only the label form's gradient is that of I(S;Q), and the other form settles elsewhere. Against a
fixed η, which follows nothing, neither is I(S;Q); there the other form is the default, since it is
0 only where every single answer is the prior, whereas a mean of labels is also 0 where half of the
people are recognised and the other half are taken for others.

Nothing here is a guarantee: A and B are what lagging networks say during training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import check_prior, frozen, noise_shape_of
from fedlens.privatizers.protocol import (
    FILTER,
    Batch,
    Privatizer,
    PrivatizerError,
    Seen,
    Step,
    Weights,
    detached,
    hidden_of,
    named_weights,
    run,
    seen_by,
)

RAW_UTILITY, UTILITY, ADVERSARY = "raw_utility", "utility", "adversary"
"""Networks besides the filter: φ and ψ read the utility from x and q, η the sensitive attribute."""

Leak = Literal["label", "divergence"]


@dataclass(frozen=True)
class Objective:
    """What the filter minimises.

    Attributes:
        alpha: in [0, 1]; 0 keeps all of the utility, 1 hides the sensitive attribute at any price.
        budget: nats that may leak; None for the squares of equation 6.
        weight: of the excess over the budget, squared.
        leak: how B is estimated; None for labels where η learns, for divergence where it is fixed.
        halves: take Â and B̂ from the other half of the batch each, so that the gradient of the
            squared mean is unbiased (a squared batch mean is too large by its variance).
        exclusive: utility and sensitive attribute are never those of one person: A is over records
            whose owner hides nothing, B over the others (Bertran et al. 2019, section 5.1). Needs
            ``Batch.choice``.
        distortion: weight of the mean squared change of an entry, as for the releasers of
            Jafarzadeh Asl et al. 2023: networks read what people cannot, and without it a filter
            need not keep an image that looks like one.

    Raises:
        PrivatizerError: α is outside [0, 1], the budget, a weight or the distortion below 0.
    """

    alpha: float = 0.5
    budget: float | None = None
    weight: float = 50.0
    leak: Leak | None = None
    halves: bool = False
    exclusive: bool = False
    distortion: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise PrivatizerError(f"alpha={self.alpha} must lie in [0, 1]: 0 hides nothing")
        if self.budget is not None and not self.budget >= 0:
            raise PrivatizerError(f"budget={self.budget} nats must be at least 0")
        if not self.weight > 0:
            raise PrivatizerError(f"weight={self.weight} must be above 0")
        if not self.distortion >= 0:
            raise PrivatizerError(f"distortion={self.distortion} must be at least 0")


class InformationPrivatizer(Privatizer):
    """Algorithms 1, 2 and 3 of Bertran et al. 2019, by which of the networks are fixed.

    Args:
        filter: a network of (records, noise[, choice]) with a ``noise_shape``.
        prior: P(s), float [sensitive classes], the *population's*: a client's own would let the
            filter hide what that client is alone in.
        objective: what is minimised.
        raw_utility: φ of Algorithm 1, of raw records.
        utility: ψ of Algorithm 1, of released records.
        adversary: η of Algorithms 1 and 2; it learns. It reads the filter's code where the filter
            shows one (`fedlens.privatizers.protocol.Seen`), else what is released.
        fixed_utility: the provider's network, φ and ψ at once (Algorithms 2 and 3); it does not
            learn.
        fixed_adversary: the provider's network for the sensitive attribute (Algorithm 3); it does
            not learn.

    Raises:
        PrivatizerError: the prior is none or has one class only, the filter names no
            ``noise_shape``, or a network is missing or given twice.
    """

    def __init__(
        self,
        filter: nn.Module,  # noqa: A002 - the network's name
        prior: Tensor,
        objective: Objective | None = None,
        *,
        raw_utility: nn.Module | None = None,
        utility: nn.Module | None = None,
        adversary: nn.Module | None = None,
        fixed_utility: nn.Module | None = None,
        fixed_adversary: nn.Module | None = None,
    ) -> None:
        self.objective = objective if objective is not None else Objective()
        self.log_prior = check_prior(prior).log()
        self.noise_shape = noise_shape_of(filter)
        learners = {RAW_UTILITY: raw_utility, UTILITY: utility, ADVERSARY: adversary}
        _check_networks(learners, fixed_utility, fixed_adversary)
        given = {name: net for name, net in learners.items() if net is not None}
        self.networks: Mapping[str, nn.Module] = {FILTER: filter, **given}
        self._fixed = {
            name: frozen(net)
            for name, net in ((UTILITY, fixed_utility), (ADVERSARY, fixed_adversary))
            if net is not None
        }

    @property
    def leak(self) -> Leak:
        """How B is estimated."""
        return self.objective.leak or ("divergence" if ADVERSARY in self._fixed else "label")

    def local_step(
        self,
        weights: Mapping[str, Weights],
        batch: Batch,
        noise: Tensor,
        shared: Tensor | None = None,
        *,
        filtering: bool = True,
    ) -> Step:
        """The filter's loss and each learning network's cross-entropy; scalars are Â and B̂."""
        openly, hidden = self._shares(batch)
        releasing = filtering or UTILITY in self.networks
        seen = seen_by(
            self.networks, weights, batch, noise, filtering=filtering, releasing=releasing
        )
        released = seen.released
        losses = self._reading_losses(weights, batch, seen.detached())
        if not filtering:
            return Step(losses, released.new_zeros(0))
        lost, leaked = self._terms(weights, batch, seen)
        losses[FILTER] = self._objective(lost, leaked, openly, hidden, shared)
        if self.objective.distortion:
            moved = (released - batch.records).square().mean()
            losses[FILTER] = losses[FILTER] + self.objective.distortion * moved
        scalars = torch.stack([_mean(lost, openly), _mean(leaked, hidden)]).detach()
        return Step(losses, scalars)

    @torch.no_grad()
    def report(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """A, B and the objective of both as the training networks have them: no privacy figures."""
        step = self.local_step(named_weights(self.networks), batch, noise)
        lost, leaked = (float(value) for value in step.scalars)
        alpha = self.objective.alpha
        loss = (1 - alpha) * lost**2 + alpha * leaked**2
        if self.objective.budget is not None:
            loss = lost + self.objective.weight * max(leaked - self.objective.budget, 0.0) ** 2
        return {"estimated_A": lost, "estimated_B": leaked, "estimated_loss": loss}

    def _reading_losses(
        self, weights: Mapping[str, Weights], batch: Batch, seen: Seen
    ) -> dict[str, Tensor]:
        """Cross-entropies of the networks that learn, on raw or released records."""
        openly, hidden = self._shares(batch)
        inputs = {
            RAW_UTILITY: (batch.records, None, batch.utility, openly),
            UTILITY: (seen.released, None, batch.utility, openly),
            ADVERSARY: (seen.read, batch.side, batch.sensitive, hidden),
        }
        return {
            network: _mean(
                -_of_label(
                    _log_answers(self.networks[network], weights[network], records, side), true
                ),
                share,
            )
            for network, (records, side, true, share) in inputs.items()
            if network in self.networks
        }

    def _terms(
        self, weights: Mapping[str, Weights], batch: Batch, seen: Seen
    ) -> tuple[Tensor, Tensor]:
        """Each record's part of A and of B, float32 [n] each, with the classifiers held still."""
        raw = self._answers(RAW_UTILITY, weights, batch.records, None).detach()
        lost = (raw.exp() * (raw - self._answers(UTILITY, weights, seen.released, None))).sum(-1)
        read = self._answers(ADVERSARY, weights, seen.read, batch.side)
        if read.shape[-1] != len(self.log_prior):
            raise PrivatizerError(
                f"the adversary has {read.shape[-1]} answers, the prior "
                f"{len(self.log_prior)}; give one for each sensitive class"
            )
        surprise = read - self.log_prior.to(read.device)
        if self.leak == "label":
            return lost, _of_label(surprise, batch.sensitive)
        return lost, (read.exp() * surprise).sum(-1)

    def _answers(
        self, network: str, weights: Mapping[str, Weights], records: Tensor, side: Tensor | None
    ) -> Tensor:
        """Log-probabilities [n, classes] of a classifier whose weights are held still."""
        name = UTILITY if network == RAW_UTILITY and UTILITY in self._fixed else network
        if name in self._fixed:
            return F.log_softmax(_call(self._fixed[name], records, side), -1)
        return _log_answers(self.networks[name], detached(weights[name]), records, side)

    def _objective(
        self, lost: Tensor, leaked: Tensor, openly: Tensor, hidden: Tensor, shared: Tensor | None
    ) -> Tensor:
        """A scalar whose gradient is the objective's."""
        if self.objective.halves and shared is None:
            first = torch.arange(len(lost), device=lost.device) < len(lost) // 2
            means = [
                torch.stack([_mean(lost, openly * half), _mean(leaked, hidden * half)])
                for half in (first, ~first)
            ]
            pairs = [(means[0], means[1].detach()), (means[1], means[0].detach())]
            crossed = [self._weighed(own, other) for own, other in pairs]
            return (crossed[0] + crossed[1]) / 2
        means_now = torch.stack([_mean(lost, openly), _mean(leaked, hidden)])
        return self._weighed(means_now, means_now.detach() if shared is None else shared.detach())

    def _weighed(self, means: Tensor, scalars: Tensor) -> Tensor:
        """A and B, each times the objective's slope in it at the scalars."""
        if self.objective.budget is not None:
            excess = F.relu(scalars[1] - self.objective.budget)
            return means[0] + 2 * self.objective.weight * excess * means[1]
        alpha = self.objective.alpha
        return 2 * (1 - alpha) * scalars[0] * means[0] + 2 * alpha * scalars[1] * means[1]

    def _shares(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Which records count for the utility and which for the adversary, float32 [n] each."""
        everybody, hidden = batch.records.new_ones(len(batch.records)), hidden_of(batch)
        if not self.objective.exclusive:
            return everybody, hidden
        if batch.choice is None:
            raise PrivatizerError("exclusive=True needs each record's choice; the batch has none")
        return 1 - hidden, hidden


def _check_networks(
    learners: Mapping[str, nn.Module | None],
    fixed_utility: nn.Module | None,
    fixed_adversary: nn.Module | None,
) -> None:
    reads_utility = learners[RAW_UTILITY] is not None and learners[UTILITY] is not None
    some_utility = learners[RAW_UTILITY] is not None or learners[UTILITY] is not None
    if (fixed_utility is None and not reads_utility) or (
        fixed_utility is not None and some_utility
    ):
        raise PrivatizerError("give either raw_utility and utility (they learn) or fixed_utility")
    if (fixed_adversary is None) == (learners[ADVERSARY] is None):
        raise PrivatizerError("give either adversary (it learns) or fixed_adversary")


def _call(net: nn.Module, records: Tensor, side: Tensor | None) -> Tensor:
    answers: Tensor = net(records) if side is None else net(records, side)
    return answers


def _log_answers(net: nn.Module, weights: Weights, records: Tensor, side: Tensor | None) -> Tensor:
    return F.log_softmax(run(net, weights, records, side), -1)


def _of_label(rows: Tensor, labels: Tensor) -> Tensor:
    return rows.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _mean(values: Tensor, share: Tensor) -> Tensor:
    """The mean over the records that count; 0 where none does."""
    return (values * share).sum() / share.sum().clamp_min(1e-12)
