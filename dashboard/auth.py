"""Authentication in front of every page, file and websocket of the dashboard.

Streamlit's own server hands out ``/media`` files and accepts websockets from anyone who can reach
the port. `AuthMiddleware` is an ASGI middleware around the whole application: without a cookie
signed by this process, only the login page and the health check answer.

A visitor gets the cookie for the access token, either from the link printed at the start
(``http://127.0.0.1:8501/?token=...``) or by pasting the token into the login page. The token
itself is never stored in the browser: the link is answered by a redirect to the same page
without it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.errors import DashboardError
from dashboard.login import login_page

OPEN_PATHS = frozenset({"/_stcore/health"})
LOGIN_PATH = "/login"
SHORTEST_TOKEN = 16
LARGEST_FORM = 4096
SESSION_SECONDS = 7 * 24 * 3600
WRONG_TOKEN_DELAY = 0.5

# The browser itself refuses to talk to any other machine, whatever a page might contain.
# Streamlit's bundle needs inline styles, eval (Vega) and blob modules (components).
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "worker-src 'self' blob:; connect-src 'self' blob: data:; object-src 'none'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'self'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class SessionTokens:
    """Issues and checks the session tokens of people who have shown the access token.

    Args:
        token: the access token, at least 16 characters.
        port: part of the cookie's name, because browsers share cookies between ports.
        clock: seconds since the epoch.

    Raises:
        DashboardError: the token is too short to keep anyone out.
    """

    def __init__(self, token: str, port: int, clock: Callable[[], float] = time.time) -> None:
        if len(token) < SHORTEST_TOKEN or not token.isascii():
            raise DashboardError(
                f"token of {len(token)} characters cannot be used: give at least "
                f"{SHORTEST_TOKEN} ASCII characters, or leave it out and one is made for you"
            )
        self.cookie = f"fedlens-{port}"
        self._token = token.encode()
        self._key = hashlib.sha256(b"fedlens dashboard cookie\0" + self._token).digest()
        self._clock = clock

    def is_token(self, offered: str) -> bool:
        """Whether ``offered`` is the access token; takes the same time whatever differs."""
        return hmac.compare_digest(offered.encode(), self._token)

    def issue(self) -> str:
        """A fresh cookie value, good for ``SESSION_SECONDS``."""
        body = f"{int(self._clock()) + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{body}.{self._sign(body)}"

    def is_valid(self, value: str) -> bool:
        """Whether ``value`` was issued with this token and has not run out."""
        body, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(body).encode()):
            return False
        return int(body.partition(".")[0]) > self._clock()

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def new_token() -> str:
    """An access token of 256 random bits from the operating system."""
    return secrets.token_urlsafe(32)


class AuthMiddleware:
    """ASGI middleware: passes on what carries a valid session token, answers the rest itself."""

    def __init__(self, app: ASGIApp, tokens: SessionTokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection; websockets without a session are refused at the handshake."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, _with_security_headers(send))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._has_session(scope):
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._own_answer(request)
        await (response or self._app)(scope, receive, send)

    async def _own_answer(self, request: Request) -> Response | None:
        """Our own answer, or None where the application may answer."""
        if request.url.path == LOGIN_PATH and request.method == "POST":
            return await self._login(request)
        if "token" in request.query_params:
            return await self._token_link(request)
        if self._has_session(request.scope):
            return _see_other("/") if request.url.path == LOGIN_PATH else None
        if request.url.path == LOGIN_PATH:
            return HTMLResponse(login_page())
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return _see_other(LOGIN_PATH)
        return PlainTextResponse("Not signed in.\n", status_code=401)

    async def _token_link(self, request: Request) -> Response:
        if not self._tokens.is_token(request.query_params["token"]):
            return await _refused()
        rest = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
        # A path is only ever taken from this server's own URL; "//host" would leave it.
        path = "/" + request.url.path.lstrip("/")
        return self._admit(f"{path}?{urlencode(rest)}" if rest else path, request)

    async def _login(self, request: Request) -> Response:
        fields = dict(parse_qsl((await _body(request)).decode("utf-8", "replace")))
        if not self._tokens.is_token(fields.get("token", "").strip()):
            return await _refused()
        return self._admit("/", request)

    def _admit(self, target: str, request: Request) -> Response:
        response = _see_other(target)
        response.set_cookie(
            self._tokens.cookie,
            self._tokens.issue(),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    def _has_session(self, scope: Scope) -> bool:
        return self._tokens.is_valid(_cookie(scope, self._tokens.cookie))


def _cookie(scope: Scope, name: str) -> str:
    """The named cookie's value, or "" where it is absent or the header cannot be read."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            try:
                jar = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return ""
            return jar[name].value if name in jar else ""
    return ""


async def _body(request: Request) -> bytes:
    """The request's body up to ``LARGEST_FORM`` bytes; no token is longer."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            return b""
    return body


async def _refused() -> Response:
    await anyio.sleep(WRONG_TOKEN_DELAY)  # slows guessing without locking anyone out
    return HTMLResponse(login_page("That is not the token of this dashboard."), status_code=401)


def _see_other(target: str) -> RedirectResponse:
    return RedirectResponse(target, status_code=303, headers={"cache-control": "no-store"})


def _with_security_headers(send: Send) -> Send:
    extra = [(k.encode(), v.encode()) for k, v in SECURITY_HEADERS.items()]

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(k, v) for k, v in message["headers"] if k.lower() not in dict(extra)]
            message = {**message, "headers": kept + extra}
        await send(message)

    return wrapped
