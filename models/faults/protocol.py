"""What a fault is: a pure function of one user's records, with a public seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from string import Formatter
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
    copies: bool = False
    """Whether it puts records in the place of others, whatever their labels."""
    colours: bool = False
    """Whether only colour images show it."""
    probe: str = ""
    """The question to users that confirms it, as in `fedlens.models.probes`, such as
    ``"better_after:tilt:{classes}:amount={minus}"``; empty where the library has none.

    A part whose figure is not known is left out: ``classes`` (where it shows, if not in all),
    ``amount``, and of it ``minus`` and ``inverse``. A question about one ``{label}`` is not asked
    where none is known.
    """
    otherwise: str = ""
    """What else looks the same in released sums, for people; empty for nothing in particular."""

    @property
    def kind(self) -> Literal["image", "label"]:
        """What it changes."""
        return "label" if self.image is None else "image"

    @property
    def needs_labels(self) -> bool:
        """Whether records without labels cannot have it."""
        return self.kind == "label" and not self.copies

    def question(
        self, amount: float | None = None, chosen: Sequence[int] = (), total: int = 0
    ) -> str:
        """The probe that would confirm it, as people write it; empty where there is none.

        Args:
            amount: in its own measure, where it has one.
            chosen: the classes where it shows.
            total: number of classes of the data; a fault in all of them is asked of all, unless
                it is about some by its nature, such as two whose names are exchanged.
        """
        if "{label}" in self.probe:
            return self.probe.format(label=chosen[0]) if chosen else ""
        known: dict[str, str] = {}
        if chosen and (len(chosen) < total or self.takes != "any"):
            known["classes"] = "classes=" + ",".join(map(str, chosen))
        if amount is not None:
            known |= {"amount": f"{amount:g}", "minus": f"{-amount:g}"}
        if amount:
            known["inverse"] = f"{round(1 / amount, 4):g}"
        parts = [part for part in self.probe.split(":") if _names(part) <= set(known)]
        return ":".join(part.format(**known) for part in parts)

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


def composed(parts: Sequence[Fault]) -> Fault:
    """Faults of images one after the other, each with the first of its amounts.

    Args:
        parts: in the order in which they happen; none needs a class of its own.
    """

    def image(images: Tensor, setting: FaultSetting) -> Tensor:
        for one in parts:
            if one.image is not None:
                images = one.image(images, replace(setting, amount=one.amounts[0])).clamp(-1, 1)
        return images

    return Fault(
        "+".join(one.name for one in parts),
        ", then ".join(_said(one) for one in parts),
        image=image,
        colours=any(one.colours for one in parts),
    )


def _said(one: Fault) -> str:
    return f"{one.says} ({one.amounts[0]:g} {one.measure})" if one.measure else one.says


def _names(part: str) -> set[str]:
    """The figures that a part of a question needs."""
    return {name for _, name, _, _ in Formatter().parse(part) if name}
