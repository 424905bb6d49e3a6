"""What is asked of a privatizer's networks and priors before anything is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedlens.privatizers.protocol import PrivatizerError

SHOWN = 10
"""Shares of classes that an error shows at most."""


def check_prior(prior: Tensor) -> Tensor:
    """Return the prior as float32, or say why there is nothing to hide.

    Raises:
        PrivatizerError: unless it is a row of at least two positive numbers that sum to 1.
    """
    if prior.ndim != 1 or len(prior) < 2:
        raise PrivatizerError(
            f"prior is of shape {tuple(prior.shape)}: one class cannot be hidden; "
            "give the shares of at least two"
        )
    if not bool((prior > 0).all()) or abs(float(prior.sum()) - 1) > 1e-4:
        shown = ", ".join(f"{share:.3g}" for share in prior.tolist()[:SHOWN])
        more = ", ..." if len(prior) > SHOWN else ""
        lacking = [place for place, share in enumerate(prior.tolist()) if not share > 0]
        where = f" (class {lacking[0]} has {float(prior[lacking[0]]):g})" if lacking else ""
        raise PrivatizerError(
            f"prior [{shown}{more}] must be above 0 everywhere and sum to 1{where}; leave out "
            "a class that does not occur"
        )
    return prior.float()


def prior_of(sensitive: Tensor, classes: int) -> Tensor:
    """The shares of the classes among int64 labels, float32 [classes].

    Raises:
        PrivatizerError: fewer than two classes occur, or one of ``classes`` does not.
    """
    counts = torch.bincount(sensitive.flatten(), minlength=classes)
    return check_prior(counts / counts.sum())


def noise_shape_of(net: nn.Module) -> tuple[int, ...]:
    """The noise that a filter takes.

    Raises:
        PrivatizerError: the network names none.
    """
    shape = getattr(net, "noise_shape", None)
    if not isinstance(shape, tuple):
        raise PrivatizerError(f"{type(net).__name__} has no noise_shape, so it is no filter")
    return shape


def choices_of(net: nn.Module) -> int:
    """The opt-in bits that a filter was built for; 0 where everybody is treated alike."""
    choices = getattr(net, "choices", 0)
    return choices if isinstance(choices, int) else 0


def check_reads(net: nn.Module, example: Tensor, classes: int | None, name: str) -> None:
    """Try a network on an example record [1, ...] before anything is trained.

    Args:
        net: records to logits.
        example: float32 [1, ...].
        classes: how many answers it must give; None for two or more.
        name: what it is called in errors.

    Raises:
        PrivatizerError: it does not take such a record, or gives another number of answers.
    """
    try:
        with torch.no_grad():
            answers = net(example)
    except RuntimeError as error:
        raise PrivatizerError(
            f"{name} does not take records of shape {tuple(example.shape[1:])}: "
            f"{str(error).splitlines()[0]}; give a network built for this data"
        ) from None
    wanted = max(2, answers.shape[-1]) if classes is None else classes
    if answers.shape != (len(example), wanted):
        raise PrivatizerError(
            f"{name} answers with shape {tuple(answers.shape[1:])} for {classes or 'at least two'} "
            "classes; give a network built for this data"
        )


def frozen(net: nn.Module) -> nn.Module:
    """The network in evaluation mode, its parameters constant (in place)."""
    return net.requires_grad_(False).eval()
