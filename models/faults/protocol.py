"""What a fault is: a pure function of one user's records, with a public seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

Records = tuple[Tensor, Tensor]
"""Images float32 [n, channels, height, width] in [-1, 1], and labels int64 [n]."""


@dataclass(frozen=True)
class FaultSetting:
    """How a fault is carried out on one user's records."""

    classes: int
    """Number of classes of the data."""
    chosen: tuple[int, ...] = ()
    """Classes that it is about; empty for all."""
    amount: float = 0.0
    """How strong it is, in the fault's own measure."""
    seed: int = 0
    """Public; whatever is random in the fault follows from it."""

    def generator(self) -> torch.Generator:
        """A generator of the seed. It draws faults, never privacy noise."""
        return torch.Generator().manual_seed(self.seed)


ImageChange = Callable[[Tensor, FaultSetting], Tensor]
"""Images in [-1, 1] to images of the same shape in [-1, 1]."""
LabelChange = Callable[[Tensor, Tensor, FaultSetting], Records]
"""Records to records, of which there may be fewer."""
Takes = Literal["any", "class", "pair"]


@dataclass(frozen=True)
class Variant:
    """One way in which a fault can show."""

    chosen: tuple[int, ...]
    amount: float


@dataclass(frozen=True)
class Fault:
    """What can be wrong with a user's records, of the images or of the labels.

    A fault looks at one user's records, its setting and nothing else. It changes no argument.
    """

    name: str
    says: str
    """What it is, for people, such as ``"turned left by 90 degrees"``."""
    image: ImageChange | None = None
    """Given for a fault of the images; then labels stay."""
    label: LabelChange | None = None
    """Given for a fault of labels or of which records there are."""
    amounts: tuple[float, ...] = (0.0,)
    """Amounts that a diagnosis tries; the first is what is planted where none is said."""
    measure: str = ""
    """What an amount is, such as ``"degrees"``; empty where the fault has none."""
    continuous: bool = False
    """Whether amounts between those mean something, so that a diagnosis looks there too."""
    takes: Takes = "any"
    """The classes that it needs: any, exactly one, or two."""
    renames: bool = False
    """Whether it does nothing but exchange the names of classes, the same way for all records."""
    colours: bool = False
    """Whether only colour images show it."""

    @property
    def kind(self) -> Literal["image", "label"]:
        """What it changes."""
        return "label" if self.image is None else "image"

    def variants(self, classes: int) -> tuple[Variant, ...]:
        """What a diagnosis tries, for data of so many classes."""
        wanted: list[tuple[int, ...]] = [()]
        if self.takes != "any":
            wanted = list(combinations(range(classes), 1 if self.takes == "class" else 2))
        return tuple(Variant(chosen, amount) for chosen in wanted for amount in self.amounts)

    def applied(self, images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
        """The records under the fault.

        A fault of the images is carried out on the chosen classes' records alone.
        """
        if self.label is not None:
            return self.label(images, labels, setting)
        if self.image is None or not len(labels):
            return images, labels
        changed = self.image(images, setting).clamp(-1, 1)
        if setting.chosen:
            touched = torch.isin(labels, torch.tensor(setting.chosen))
            changed = torch.where(touched[:, None, None, None], changed, images)
        return changed, labels
