"""A proxy that the environment names: never asked for this machine, and named where it is asked.

``HTTPS_PROXY`` and its like hold for Flower's programs and for our own requests. A proxy of an
organisation has another loopback, so this machine is asked directly whatever they say.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def with_direct(environment: Mapping[str, str], *hosts: str) -> dict[str, str]:
    """An environment in which this machine, and ``hosts``, are asked without a proxy."""
    lower, upper = environment.get("no_proxy"), environment.get("NO_PROXY", "")
    named = [one.strip() for one in (upper if lower is None else lower).split(",") if one.strip()]
    whole = ",".join(dict.fromkeys([*named, *LOOPBACK, *hosts]))
    return {**environment, "NO_PROXY": whole, "no_proxy": whole}


def opener_to(
    place: str, context: ssl.SSLContext | None = None, *, own: bool = False
) -> urllib.request.OpenerDirector:
    """What opens pages at ``HOST:PORT``: directly on this machine, else by the environment.

    Args:
        place: ``HOST:PORT``.
        context: of TLS.
        own: whether the address is this machine's, loopback or not.
    """
    handlers: list[urllib.request.BaseHandler] = []
    if own or is_loopback(place):
        handlers.append(urllib.request.ProxyHandler({}))
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def through(place: str, *, own: bool = False) -> str:
    """In words, the proxy by which ``HOST:PORT`` is asked and how to do without; empty for none."""
    proxy = urllib.request.getproxies().get("https", "")
    if own or not proxy or is_loopback(place) or urllib.request.proxy_bypass(place):
        return ""
    found = urlsplit(proxy if "://" in proxy else f"//{proxy}")
    named = f"{found.hostname}:{found.port}" if found.port else str(found.hostname)  # no password
    return (
        f" through the proxy {named} that HTTPS_PROXY names (NO_PROXY={_host(place)} asks it "
        "directly)"
    )


def is_loopback(place: str) -> bool:
    """Whether ``HOST:PORT`` is this machine by its loopback."""
    host = _host(place)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(place: str) -> str:
    return urlsplit(f"//{place}").hostname or place
