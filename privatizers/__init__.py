"""Privatizers: filters that devices run before data leaves, and how they learn.

One Protocol (`privatizers.protocol`), one line of registry a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privatizers.alpha import AlphaPrivatizer
from privatizers.cloak import CloakPrivatizer
from privatizers.fader import FaderPrivatizer
from privatizers.information import InformationPrivatizer
from privatizers.protocol import Privatizer, PrivatizerError

METHODS: dict[str, Callable[..., Privatizer]] = {
    "alpha": AlphaPrivatizer,
    "cloak": CloakPrivatizer,
    "fader": FaderPrivatizer,
    "information": InformationPrivatizer,
}
"""Methods by name; what a builder takes is the method's own."""


def build_privatizer(name: str, *parts: Any, **settings: Any) -> Privatizer:
    """A privatizer of the named method.

    Raises:
        PrivatizerError: there is no such method, or it cannot be built of these parts.
    """
    if name not in METHODS:
        raise PrivatizerError(f"method={name!r} is unknown: choose one of {', '.join(METHODS)}")
    return METHODS[name](*parts, **settings)
