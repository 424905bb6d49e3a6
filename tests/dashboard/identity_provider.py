"""An OpenID provider for tests: it asks who one is, and believes it. Real HTTP, real signatures."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "fedlens", "a secret of the tests"


@dataclass
class IdentityProvider:
    """What it is asked and what it answers; a test may change both."""

    address: str
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    changed: dict[str, Any] = field(default_factory=dict)
    """Claims that are other than they should be."""
    signed_by: RSAKey | None = None
    """Another key that signs, which it does not show."""
    padding: int = 0
    """Bytes that its first page is longer."""
    longer: int = 0
    """Bytes that its answer with an identity is longer."""
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """By code: what was asked, and who it was."""

    def metadata(self, _: Request) -> Response:
        """Where everything is."""
        places = {"authorization_endpoint": "ask", "token_endpoint": "token", "jwks_uri": "keys"}
        found = {name: f"{self.address}/{path}" for name, path in places.items()}
        return JSONResponse({"issuer": self.address, "more": "x" * self.padding, **found})

    def keys(self, _: Request) -> Response:
        """The public key."""
        return JSONResponse(KeySet([self.key]).as_dict(private=False))

    def ask(self, request: Request) -> Response:
        """A page on which one says who one is."""
        given = dict(request.query_params)
        if "who" not in given:
            hidden = "".join(
                f'<input type="hidden" name="{name}" value="{value}">'
                for name, value in given.items()
            )
            return HTMLResponse(
                f'<html lang="en"><title>who</title><form>{hidden}<label>Who are you '
                '<input name="who"></label><button>Go on</button></form></html>'
            )
        code = f"code-{len(self.asked)}"
        self.asked[code] = given
        answer = urlencode({"code": code, "state": given["state"]})
        return RedirectResponse(f"{given['redirect_uri']}?{answer}", status_code=303)

    async def token(self, request: Request) -> Response:
        """An identity for a code, once, to the one who asked for it."""
        sent = dict(parse_qsl((await request.body()).decode()))
        asked = self.asked.pop(sent.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            asked is None
            or request.headers.get("authorization") != f"Basic {basic}"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != sent.get("redirect_uri")
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        claims = {
            "iss": self.address, "aud": CLIENT, "sub": asked["who"], "email": asked["who"],
            "email_verified": True, "nonce": asked["nonce"], "iat": now, "exp": now + 300,
        } | self.changed  # fmt: skip
        key = self.signed_by or self.key
        identity = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
        return JSONResponse(
            {
                "access_token": "x" * (1 + self.longer),
                "token_type": "Bearer",
                "expires_in": 300,
                "id_token": identity,
            }
        )


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Serve one on any free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = IdentityProvider(f"http://127.0.0.1:{listener.getsockname()[1]}")
    routes = [
        Route("/.well-known/openid-configuration", made.metadata),
        Route("/keys", made.keys),
        Route("/ask", made.ask),
        Route("/token", made.token, methods=["POST"]),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
