"""A probe as another package would bring it, and a plug-in that is none."""

from __future__ import annotations

from fedlens.models.probes.protocol import Probe

BRIGHT = Probe(
    "bright",
    "share of pixels that are bright",
    lambda own, argument: (own.images > 0).float().mean((1, 2, 3)),
    0,
    1,
)


def boundless(own, argument):
    """A function that declares nothing."""
    return own.images.sum((1, 2, 3))
