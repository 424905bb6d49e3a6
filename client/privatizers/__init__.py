"""Privatizers: filters that devices run before data leaves, and how they learn.

One Protocol (`client.privatizers.protocol`), one line of registry a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.privatizers.alpha import AlphaPrivatizer
from client.privatizers.cloak import CloakPrivatizer
from client.privatizers.fader import FaderPrivatizer
from client.privatizers.information import InformationPrivatizer
from client.privatizers.protocol import Privatizer, PrivatizerError

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
