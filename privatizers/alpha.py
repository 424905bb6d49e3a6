"""The alpha-MI releaser of Jafarzadeh Asl et al. 2023: make the adversary doubt.

With d the distortion and H_α(S|Z) Arimoto's conditional entropy of order α in nats, the releaser
minimises (equations 5, 11, 14 and 15)

    distortion · mean |x − z|² / entries + β · CE(classifier(z), u) − λ · H_α(S|Z)

while an adversary reads the sensitive attribute from what is released, and from side information
where there is some; of a series it reads each step's sensitive value (from the steps so far in the
paper; which steps it sees is its network's affair), and H_α is the mean over steps (the paper's
symbols are lost; the joint form over all steps is another reading). Maximising H_α minimises
I_α(S;Z) = H_α(S) − H_α(S|Z), since the releaser cannot change H_α(S).

Both modes estimate H_α(S|Z) = α/(1−α) log mean_i g_i, with p the adversary's answers and
    entropy  g_i = (Σ_s p_i(s)^α)^(1/α), the adversary learns by cross-entropy   (the paper's (9))
    loss     g_i = q_i(s_i)^((α−1)/α),   q = p and the adversary learns by this α-loss (α <= 1),
                                         q = p^α/Σp^α and it learns by cross-entropy (α > 1)
In **entropy** mode the releaser is paid for making *this* adversary doubt, truthfully or not: the
adversary's doubt is no figure of privacy, and its gradient is not that of H_α(S|Z). In **loss**
mode it is: the least that any adversary reaches is H_α(S|Z), at the posterior tilted to p^α/Σp^α
(Liao et al. 2018), so with the adversary at its optimum the envelope theorem makes the releaser's
gradient that of H_α(S|Z). Above 1 the α-loss itself would let an adversary give up the rarer
labels: it answers one class with certainty, and nothing moves it, or the releaser, again. There it
learns the posterior instead, and is tilted. As α → 1 the forms are Shannon's entropy of the answers
and the adversary's cross-entropy; α = ∞ takes the greatest probability and the label's own.

With an error budget D (the constrained form that the paper starts from) they minimise
    penalty · max(d − D, 0)² − λ · H_α(S|Z)
instead: the error settles near D, where with a fixed λ it jumps from nothing hidden to all hidden.

The logarithm of a mean does not decompose over users. The mean of g is in ``Step.scalars``, and the
releaser's gradient with everybody's mean M̂ is α/(1−α) · ∇mean g / M̂. With an error budget the
mean of d is the last scalar, and the gradient 2 · penalty · max(d̂ − D, 0) · ∇d.

Nothing here is a guarantee: it is what a lagging adversary says during training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import frozen, noise_shape_of
from fedlens.privatizers.protocol import (
    FILTER,
    Batch,
    Privatizer,
    PrivatizerError,
    Step,
    Weights,
    detached,
    hidden_of,
    named_weights,
    run,
    seen_by,
)

UTILITY, ADVERSARY = "utility", "adversary"
"""Networks besides the filter: they read the utility, or the sensitive attribute, of releases."""

Mode = Literal["entropy", "loss"]

NEAR_ONE = 1e-4
"""Orders so near 1 are Shannon's: beyond float32's reach the general form is rounding error."""
LEAST_LOG = math.log(1e-4)
"""No answer of the adversary counts as less likely than this: for α < 1 one label that it called
impossible would outweigh the whole batch."""
STEEPEST = 20.0
"""Largest power of a tilt: where it is a step, it has no slope."""
LARGEST_LOG = 80.0
"""Of g: beyond it float32 overflows."""


@dataclass(frozen=True)
class AlphaObjective:
    """What the releaser minimises.

    Attributes:
        alpha: the order, above 0; 1 is mutual information, infinity min-entropy leakage.
        weight: λ of the adversary's uncertainty, at least 0; 0 is full utility.
        mode: how uncertainty is estimated: ``entropy`` as the paper, ``loss`` with its gradient.
        distortion: weight of the squared error a record's entry, at least 0.
        beta: weight of the utility classifier's cross-entropy, at least 0; needs such a network.
        error_budget: D, in units of the distortion with its weights; None weighs d by 1.
        penalty: of what d exceeds D by, squared; above 0.

    Raises:
        PrivatizerError: on a value outside its range.
    """

    alpha: float = 1.0
    weight: float = 1.0
    mode: Mode = "entropy"
    distortion: float = 1.0
    beta: float = 0.0
    error_budget: float | None = None
    penalty: float = 20.0

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise PrivatizerError(f"alpha={self.alpha} must be above 0; 1 is mutual information")
        if self.mode not in ("entropy", "loss"):
            raise PrivatizerError(f"mode={self.mode!r} is unknown: choose entropy or loss")
        for name in ("weight", "distortion", "beta"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise PrivatizerError(f"{name}={value} must be a finite number of at least 0")
        for name in ("error_budget", "penalty"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise PrivatizerError(f"{name}={value} must be a finite number above 0")

    @property
    def shannon(self) -> bool:
        """Whether the order counts as 1."""
        return abs(self.alpha - 1) < NEAR_ONE

    @property
    def tilts(self) -> bool:
        """Whether answers are tilted for the price, of an adversary that learns the posterior."""
        return self.mode == "loss" and self.alpha > 1 and not self.shannon

    def tilted(self, log_probabilities: Tensor) -> Tensor:
        """The answers, log-probabilities [..., classes], as the releaser is charged for them."""
        if not self.tilts:
            return log_probabilities
        return F.log_softmax(min(self.alpha, STEEPEST) * log_probabilities, -1)

    def check_classes(self, classes: int) -> None:
        """Refuse an order so small that float32 cannot hold g.

        Raises:
            PrivatizerError: when it is.
        """
        if self.shannon or self.alpha > 1:
            return
        reach = (1 / self.alpha - 1) * (math.log(classes) if self.mode == "entropy" else -LEAST_LOG)
        if reach > LARGEST_LOG:
            raise PrivatizerError(
                f"alpha={self.alpha} is too small for {classes} classes in mode {self.mode}: "
                f"numbers reach e^{reach:.0f}; give a larger order"
            )

    def log_terms(self, log_probabilities: Tensor, sensitive: Tensor) -> Tensor:
        """Logarithm of each answer's g, [...], of log-probabilities [..., classes] and labels.

        At order 1, where there is no g, the uncertainty itself: entropy, or minus the log of the
        label's probability.
        """
        if self.mode == "loss":
            label = log_probabilities.gather(-1, sensitive.unsqueeze(-1)).squeeze(-1)
            if self.shannon:
                return -label
            power = 1.0 if self.alpha == math.inf else (self.alpha - 1) / self.alpha
            return power * (label.clamp_min(LEAST_LOG) if self.alpha < 1 else label)
        if self.shannon:
            return -(log_probabilities.exp() * log_probabilities).sum(-1)
        if self.alpha == math.inf:
            return log_probabilities.max(-1).values
        return torch.logsumexp(self.alpha * log_probabilities, -1) / self.alpha

    def uncertainty(
        self, log_terms: Tensor, counted: Tensor, shared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """H_α(S|Z) in nats as a batch has it, a mean over steps, and the means of g it rests on.

        Args:
            log_terms: [n] or [n, T], of :meth:`log_terms`.
            counted: float32 [n], 1 for each record that counts; 0 everywhere gives 0.
            shared: the means of g of everybody; the value then has the right gradient only.
        """
        rows = log_terms.reshape(len(log_terms), -1)
        total = counted.sum().clamp_min(1e-12)
        if self.shannon:
            return (rows.mean(1) * counted).sum() / total, rows.new_zeros(0)
        means = (rows.exp() * counted[:, None]).sum(0) / total
        slope = -1.0 if self.alpha == math.inf else self.alpha / (1 - self.alpha)
        if shared is None:
            somebody = (counted.sum() > 0).to(means.dtype)
            logs = somebody * means.clamp_min(1e-30).log()
            return slope * logs.mean(), means.detach()
        return slope * (means / shared.detach().clamp_min(1e-30)).mean(), means.detach()

    def price(self, distortion: Tensor, shared: Tensor | None = None) -> Tensor:
        """What the releaser pays for a distortion d; a scalar.

        Args:
            distortion: d of a batch, scalar.
            shared: everybody's mean of d; the price then has the right gradient only.
        """
        if self.error_budget is None:
            return distortion
        if shared is None:
            return self.penalty * (distortion - self.error_budget).clamp_min(0).square()
        over = (shared.detach() - self.error_budget).clamp_min(0)
        return 2 * self.penalty * over * distortion


class AlphaPrivatizer(Privatizer):
    """An adversary learns k steps, then the releaser (and the utility classifier).

    Algorithm 1 of Jafarzadeh Asl et al. 2023; k belongs to
    training (``per_releaser_step`` of a stage, in central training).

    Args:
        filter: the releaser, a network of (records, noise[, choice]) with a ``noise_shape``.
        adversary: a network of (released[, side information]) to sensitive logits; of the code in
            place of what is released where the filter shows one
            (`fedlens.privatizers.protocol.Seen`).
        objective: what is minimised.
        utility: a classifier of released records; it learns with the releaser.
        fixed_utility: the provider's such network instead; it does not learn.

    Raises:
        PrivatizerError: the filter names no ``noise_shape``, two utility classifiers are
            given, or ``beta`` asks for one and there is none.
    """

    def __init__(
        self,
        filter: nn.Module,  # noqa: A002 - the network's name
        adversary: nn.Module,
        objective: AlphaObjective | None = None,
        *,
        utility: nn.Module | None = None,
        fixed_utility: nn.Module | None = None,
    ) -> None:
        self.objective = objective if objective is not None else AlphaObjective()
        self.noise_shape = noise_shape_of(filter)
        if utility is not None and fixed_utility is not None:
            raise PrivatizerError("give either utility (it learns) or fixed_utility, not both")
        if self.objective.beta > 0 and utility is None and fixed_utility is None:
            raise PrivatizerError(
                f"beta={self.objective.beta} weighs a utility classifier, and there is none; "
                "give utility or fixed_utility, or beta=0"
            )
        self.networks: Mapping[str, nn.Module] = {
            FILTER: filter,
            ADVERSARY: adversary,
            **({UTILITY: utility} if utility is not None else {}),
        }
        self._fixed_utility = None if fixed_utility is None else frozen(fixed_utility)

    def local_step(
        self,
        weights: Mapping[str, Weights],
        batch: Batch,
        noise: Tensor,
        shared: Tensor | None = None,
        *,
        filtering: bool = True,
    ) -> Step:
        """Every network's loss.

        ``scalars`` are the means of g, [T] or [1], none at order 1; then, with an error budget, the
        batch's distortion.
        """
        counted = hidden_of(batch)
        releasing = filtering or UTILITY in self.networks
        released, read = seen_by(
            self.networks, weights, batch, noise, filtering=filtering, releasing=releasing
        )
        losses = {ADVERSARY: self._adversary_loss(weights, batch, read.detach(), counted)}
        if UTILITY in self.networks:
            said = run(self.networks[UTILITY], weights[UTILITY], released.detach())
            losses[UTILITY] = F.cross_entropy(said, batch.utility)
        if not filtering:
            return Step(losses, released.new_zeros(0))
        answers = self._read_sensitive(detached(weights[ADVERSARY]), batch, read)
        terms = self.objective.log_terms(self.objective.tilted(answers), batch.sensitive)
        distortion = self._distortion(weights, batch, released)
        means, everybody = shared, None
        if shared is not None and self.objective.error_budget is not None:
            means, everybody = shared[:-1], shared[-1]
        doubt, scalars = self.objective.uncertainty(terms, counted, means)
        price = self.objective.price(distortion, everybody)
        losses[FILTER] = price - self.objective.weight * doubt
        if self.objective.error_budget is not None:
            scalars = torch.cat([scalars, distortion.detach().reshape(1)])
        return Step(losses, scalars)

    @torch.no_grad()
    def report(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """Squared error, the adversary's doubt and loss as training has them: no figure of privacy.

        ``adversary_doubt`` is H_α as the adversary has it, ``adversary_loss`` its loss, in nats.
        """
        counted, weights = hidden_of(batch), named_weights(self.networks)
        released, read = seen_by(self.networks, weights, batch, noise, filtering=False)
        answers = self._read_sensitive(weights[ADVERSARY], batch, read)
        terms = self.objective.log_terms(self.objective.tilted(answers), batch.sensitive)
        found = {
            "squared_error": float(F.mse_loss(released, batch.records)),
            "adversary_doubt": float(self.objective.uncertainty(terms, counted)[0]),
            "adversary_loss": float(self._adversary_loss(weights, batch, read, counted)),
        }
        if UTILITY in self.networks or self._fixed_utility is not None:
            found["utility_loss"] = float(self._utility_loss(weights, batch, released))
        return found

    def _read_sensitive(self, weights: Weights, batch: Batch, read: Tensor) -> Tensor:
        """The adversary's log-probabilities, [n, classes] or [n, T, classes]."""
        logits = run(self.networks[ADVERSARY], weights, read, batch.side)
        if logits.shape[:-1] != batch.sensitive.shape:
            raise PrivatizerError(
                f"the adversary answers with shape {tuple(logits.shape)} for sensitive values "
                f"{tuple(batch.sensitive.shape)}; give a network with one row of classes a value"
            )
        self.objective.check_classes(logits.shape[-1])
        return F.log_softmax(logits, -1)

    def _adversary_loss(
        self, weights: Mapping[str, Weights], batch: Batch, read: Tensor, counted: Tensor
    ) -> Tensor:
        """Cross-entropy, or in loss mode up to order 1 the uncertainty that it is to bring down."""
        answers = self._read_sensitive(weights[ADVERSARY], batch, read)
        if self.objective.mode == "loss" and not self.objective.tilts:
            terms = self.objective.log_terms(answers, batch.sensitive)
            return self.objective.uncertainty(terms, counted)[0]
        label = answers.gather(-1, batch.sensitive.unsqueeze(-1)).squeeze(-1)
        each = -label.reshape(len(label), -1).mean(1)
        return (each * counted).sum() / counted.sum().clamp_min(1e-12)

    def _distortion(self, weights: Mapping[str, Weights], batch: Batch, released: Tensor) -> Tensor:
        """d(x, z): the squared error a record's entry and the loss of the utility classifier."""
        error = self.objective.distortion * F.mse_loss(released, batch.records)
        if self.objective.beta == 0:
            return error
        return error + self.objective.beta * self._utility_loss(weights, batch, released)

    def _utility_loss(
        self, weights: Mapping[str, Weights], batch: Batch, released: Tensor
    ) -> Tensor:
        """Cross-entropy of the utility classifier, held still."""
        if self._fixed_utility is not None:
            logits: Tensor = self._fixed_utility(released)
        else:
            logits = run(self.networks[UTILITY], detached(weights[UTILITY]), released)
        return F.cross_entropy(logits, batch.utility)
