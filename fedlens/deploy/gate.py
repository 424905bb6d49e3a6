"""What may be asked of the SuperLink's one port, and by whom.

Flower 1.41 serves three interfaces on one port. Nodes sign what they ask of the fleet interface.
The control interface (start a run, so run code) and the runtime interface (take a task, so read its
messages) ask nothing of who comes. This gate stands before all of them and refuses what it does not
know.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

from fedlens.deploy.keys import Operators

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Page = Callable[[], tuple[str, bytes]]
"""Gives a page's media type and content."""

CONTROL = "/v1/control/"
OPERATIONS = frozenset(
    {
        *("start-run", "stop-run", "list-runs", "stream-logs"),
        *("register-node", "unregister-node", "list-nodes"),
        *("list-federations", "show-federation"),
    }
)
"""What operators may ask of the control interface; connectors, automations, apps and the rest of it
are for Flower's own products."""
FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
"""Headers of a proxy, behind which a caller is from elsewhere, whatever its address here."""
CHANGES = ("start-run", "stop-run", "register-node", "unregister-node")
"""What operators do that the log names."""
SELF_REGISTRATION = ("/v1/fleet/register-node", "/v1/fleet/unregister-node")


class Gate:
    """ASGI middleware that lets through what a caller may ask, and nothing else.

    ========================  ===============================================
    path                      who
    ========================  ===============================================
    ``/health``               everyone
    ``/v1/fleet/...``         nodes, by their signature (Flower checks it);
                              none registers itself
    ``/v1/control/...``       operators, by their token, `OPERATIONS` alone
    ``/v1/runtime/...``       processes on this machine
    ``pages``                 operators, and processes on this machine
    anything else             no one
    ========================  ===============================================
    """

    def __init__(self, app: App, *, operators: Operators, pages: MutableMapping[str, Page]) -> None:
        self._app, self._operators, self._pages = app, operators, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a page, pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        path, local = str(scope["path"]), _is_local(scope)
        if path in self._pages:
            bare = not any(key == b"authorization" for key, _ in scope["headers"])
            if (local and bare) or self._operator(scope) is not None:
                await _page(send, 200, *self._pages[path]())
            else:
                await _refuse(send, CONTROL + "start-run")
        elif self._may(scope, path, local):
            await self._app(scope, receive, send)
        else:
            await _refuse(send, path)

    def _may(self, scope: Scope, path: str, local: bool) -> bool:
        if path.startswith(CONTROL):
            return self._operates(scope, path) and path.removeprefix(CONTROL) in OPERATIONS
        if path.startswith("/v1/runtime/"):
            return local
        if path.startswith("/v1/fleet/"):
            return path not in SELF_REGISTRATION
        return path == "/health"

    def _operates(self, scope: Scope, path: str) -> bool:
        name = self._operator(scope)
        if name is None:
            asked = path.removeprefix(CONTROL)
            named = asked if asked in OPERATIONS else "what it does not offer"  # a stranger's text
            logger.warning("refused %s: it had no operator's token", named)
        elif path.removeprefix(CONTROL) in CHANGES:
            logger.info("operator %s: %s", name, path.removeprefix(CONTROL))
        return name is not None

    def _operator(self, scope: Scope) -> str | None:
        given = [value for key, value in scope["headers"] if key == b"authorization"]
        if len(given) != 1:
            return None
        kind, _, token = given[0].decode("latin-1").partition(" ")
        return self._operators.named_by(token.strip()) if kind.lower() == "bearer" else None


def _is_local(scope: Scope) -> bool:
    """Whether the other end is on this machine: on loopback, or at the address it listens on."""
    client, server = scope.get("client"), scope.get("server")
    if not client or any(key in FORWARDED for key, _ in scope["headers"]):
        return False
    try:
        loopback = ip_address(client[0]).is_loopback
    except ValueError:
        return False
    return loopback or bool(server and client[0] == server[0])


async def _refuse(send: Send, path: str) -> None:
    status, why = 404, "there is nothing here"
    if path.startswith(CONTROL):
        status, why = 401, "an operator's token is needed: use `fedlens deploy`"
        if path.removeprefix(CONTROL) not in OPERATIONS:
            status, why = 404, "this SuperLink does not offer that"
    elif path.startswith(("/v1/runtime/", "/v1/fleet/")):
        status, why = 403, "not from here"
    await _page(send, status, "application/json", json.dumps({"error": why}).encode())


async def _page(send: Send, status: int, media: str, content: bytes) -> None:
    headers = [(b"content-type", media.encode()), (b"cache-control", b"no-store")]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
