"""Probes as they are written down, such as ``dark_border`` or ``better_after:rotate270``."""

from __future__ import annotations

from dataclasses import dataclass

from fedlens.foundation.errors import WrongUse
from fedlens.models.faults.planting import parse_transformation
from fedlens.models.probes import PROBES
from fedlens.models.probes.protocol import Argument, Probe

FORM = "write NAME or NAME:ARGUMENT, such as better_after:tilt:amount=-20 or label_share:7"
REMOVING = ("missing_class", "frequent_class")
"""Faults that change which records there are; nothing is recognised better after them."""


@dataclass(frozen=True)
class AskedProbe:
    """A probe with its argument."""

    text: str
    """As it was written."""
    probe: Probe
    argument: Argument

    @property
    def says(self) -> str:
        """The hypothesis, for people."""
        fault = self.argument.fault
        if fault is None:
            return self.probe.says.format(self.argument.number)
        by = f" ({fault.amount:g} {fault.fault.measure})" if fault.fault.measure else ""
        classes = f" ({', '.join(map(str, fault.chosen))})" if fault.chosen else ""
        return self.probe.says.format(f"{fault.fault.says}{by}{classes}")

    @property
    def about_labels(self) -> bool:
        """Whether it means nothing of records without labels."""
        fault = self.argument.fault
        of_some = fault is not None and (bool(fault.chosen) or fault.fault.needs_labels)
        return self.probe.takes == "class" or self.probe.needs_model or of_some

    def check(self, shape: tuple[int, int, int], classes: int) -> None:
        """Refuse what cannot be asked of such data.

        Raises:
            WrongUse: it is about a class that there is not, or about colours of grey images.
        """
        if self.probe.takes == "class" and self.argument.number >= classes:
            raise WrongUse(
                f"probe {self.text!r}: there is no class {self.argument.number}; classes run from "
                f"0 to {classes - 1}"
            )
        if self.argument.fault is not None:
            self.argument.fault.check(shape, classes)


def parse_probe(text: str) -> AskedProbe:
    """The question in a text.

    Raises:
        WrongUse: there is no such probe, it bounds nothing, or its argument is not understood.
        PluginError: another package's probe cannot be loaded.
    """
    name, _, rest = text.partition(":")
    probe = PROBES[name]
    if not isinstance(probe, Probe):
        raise WrongUse(
            f"probe {name!r} is no fedlens.models.probes.protocol.Probe: fix its package"
        )
    if probe.takes == "nothing":
        if rest:
            raise WrongUse(f"probe {text!r}: {name!r} takes no argument; {FORM}")
        return AskedProbe(text, probe, Argument())
    if probe.takes == "class":
        if not rest.isdecimal():
            raise WrongUse(f"probe {text!r}: give a class, such as {name}:7")
        return AskedProbe(text, probe, Argument(number=int(rest)))
    return AskedProbe(text, probe, _transformation(text, rest))


def _transformation(text: str, rest: str) -> Argument:
    name = rest.partition(":")[0]
    if not name or " " in rest:
        raise WrongUse(f"probe {text!r}: name a transformation of the library of faults; {FORM}")
    planted = parse_transformation(rest, f"probe {text!r}", FORM)
    if planted.fault.name in REMOVING:
        raise WrongUse(
            f"probe {text!r}: {name!r} takes records away, which undoes nothing: ask label_share"
        )
    return Argument(fault=planted)
