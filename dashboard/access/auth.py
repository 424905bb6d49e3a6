"""Authentication in front of every page, file and websocket of the dashboard.

Streamlit's own server hands out ``/media`` files and accepts websockets from anyone who can reach
the port. `AuthMiddleware` is an ASGI middleware around the whole application: without a cookie of
an open session, only the login page and the health check answer.

A visitor gets the cookie for a name with its password, or for the access token, either from the
link printed at the start (``http://127.0.0.1:8501/?token=...``) or pasted into the login page; or
for an identity of the team's own provider, if one is configured and an account has its name.
Sessions lie in the store, as digests of their cookies: they outlive the process, end by signing
out, and end for an account that is disabled.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedlens.dashboard.access.first_page import known_page
from fedlens.dashboard.access.login_page import NOT_FOUND, THEN, login_page
from fedlens.dashboard.access.provider import (
    CALLBACK_PATH,
    START_PATH,
    STARTED_SECONDS,
    Provider,
    ProviderError,
    Started,
)
from fedlens.dashboard.access.requests import (
    as_from_here,
    is_encrypted,
    is_from_here,
    is_page,
    read_body,
    read_cookie,
)
from fedlens.dashboard.access.visitors import Visitors
from fedlens.dashboard.widgets.options import DashboardError
from fedlens.store import Member, Store, StoreError

ACCOUNT = "fedlens.account"
"""Key of an ASGI scope under which the visitor's account lies."""
WRONG_DELAY = 0.5
"""Seconds that a wrong try takes, or a whole multiple of them."""
LONGEST_WAIT = 10.0
"""Seconds after which a try that had no turn is turned away, unchecked."""

FoundT = TypeVar("FoundT")


class GuessLimit:
    """One try after another over all visitors, and each wrong one takes its time.

    Tokens have one limit and passwords another.

    So there are at most two wrong tries a second over all connections, each answered only when
    its own time is over, whatever was done in it: how long that took tells nothing. The right
    token or password is answered at once while no one guesses.
    """

    def __init__(self) -> None:
        self._turn: anyio.Lock | None = None

    async def take_turn(self, attempt: Callable[[], FoundT | None]) -> FoundT | None:
        """Run ``attempt`` in a thread when its turn comes; ``None`` from it is a wrong try.

        Raises:
            TimeoutError: no turn came within ``LONGEST_WAIT`` seconds; nothing was tried.
        """
        self._turn = self._turn or anyio.Lock()  # belongs to the server's event loop
        with anyio.fail_after(LONGEST_WAIT):
            await self._turn.acquire()
        began = anyio.current_time()
        try:
            found = await anyio.to_thread.run_sync(attempt)
            if found is None and WRONG_DELAY:
                await anyio.sleep(WRONG_DELAY - (anyio.current_time() - began) % WRONG_DELAY)
            return found
        finally:
            self._turn.release()


ASKED_AT_ONCE, MOST_WAITING = 4, 16
"""Threads that ask an identity provider, and visitors that wait for one of them."""
OPEN_PATHS = frozenset({"/_stcore/health"})
LOGIN_PATH, LOGOUT_PATH, METRICS_PATH = "/login", "/logout", "/metrics"
SHORTEST_TOKEN = 16
SESSION_SECONDS = 7 * 24 * 3600
WRONG_TOKEN = "That is not the token of this dashboard."  # noqa: S105
WRONG_PASSWORD = "Wrong name or password."  # noqa: S105
NO_ACCOUNT = "You have no account here. Ask the dashboard's owner to add one under the name {}."
NOT_KNOWN = "The provider did not say who you are: {}. Try again, or sign in another way."
LOGIN_ACTOR = "login page"
LINK_ALONE = "Open the link by itself: paste it into the address bar.\n"
TOO_MANY = "Too many tries at once: wait half a minute and try again."

# The browser itself refuses to talk to any other machine, whatever a page might contain.
# Streamlit's bundle needs inline styles, eval (Vega) and blob modules (components).
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "worker-src 'self' blob:; connect-src 'self' blob: data:; object-src 'none'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'self'"
    ),
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


class SessionTokens:
    """Opens, checks and ends the sessions of people who have shown that they may come in.

    Args:
        token: the access token, at least 16 characters; its holder is the owner.
        port: part of the cookie's name, because browsers share cookies between ports.
        store: holds accounts and sessions.
        owner: name of the account that the access token opens.
        provider: that says who a visitor is; None for none.

    Raises:
        DashboardError: the token is too short to keep anyone out.
    """

    def __init__(
        self,
        token: str,
        port: int,
        store: Store,
        owner: str = "local",
        provider: Provider | None = None,
    ) -> None:
        if len(token) < SHORTEST_TOKEN or not token.isascii():
            raise DashboardError(
                f"token of {len(token)} characters cannot be used: give at least "
                f"{SHORTEST_TOKEN} ASCII characters, or leave it out and one is made for you"
            )
        self.cookie, self.provider = f"fedlens-{port}", provider
        self.visitors = Visitors(store)
        self._token = token.encode()
        self._store, self._owner = store, owner

    def is_token(self, offered: str) -> bool:
        """Whether ``offered`` is the access token; takes the same time whatever differs."""
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self._token)

    def shown_by_program(self, offered: str) -> str | None:
        """The token itself where it is right; no session is opened for it."""
        return offered if self.is_token(offered) else None

    def open_by_token(self, offered: str) -> str | None:
        """A cookie's value for the access token; ``None`` for another one."""
        if not self.is_token(offered):
            self._store.log_once(LOGIN_ACTOR, "access token refused")
            return None
        owner = self._store.owner_account(self._owner)
        return None if owner.disabled else self._store.sign_in(owner, SESSION_SECONDS)

    def open_by_password(self, name: str, password: str) -> str | None:
        """A cookie's value for a name with its password; ``None`` where they are not right."""
        account = self._store.check_password(name, password)
        if account is None:
            self._store.log_refusal(LOGIN_ACTOR, name)
            return None
        return self._store.sign_in(account, SESSION_SECONDS)

    def open_by_identity(self, name: str) -> str | None:
        """A cookie's value for a name that the provider vouches for; ``None`` for no account.

        The token's own account, of whatever name now or at an earlier start, is none: anybody may
        choose that name at a provider.
        """
        found = next((one for one in self._store.accounts() if one.name == name), None)
        owners = name in (self._owner, "local") or self._store.made_by_token(name)
        if found is None or found.disabled or owners:
            self._store.log_refusal(LOGIN_ACTOR, name)
            return None
        return self._store.sign_in(found, SESSION_SECONDS)

    def close(self, value: str) -> None:
        """End a session."""
        self._store.sign_out(value)
        self.visitors.forget(value)

    def has_accounts(self) -> bool:
        """Whether anyone can sign in by a password, so that the login page offers it."""
        return any(account.name != self._owner for account in self._store.accounts())


def new_token() -> str:
    """An access token of 256 random bits from the operating system."""
    return secrets.token_urlsafe(32)


class AuthMiddleware:
    """ASGI middleware: passes on what belongs to an open session, answers the rest itself.

    What it passes on carries the visitor's `Member` under ``scope["fedlens.account"]``.
    """

    def __init__(self, app: ASGIApp, tokens: SessionTokens) -> None:
        self._app = app
        self._tokens = tokens
        self._passwords, self._guesses = GuessLimit(), GuessLimit()
        self._askers: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection; websockets without a session are refused at the handshake."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, _with_security_headers(send))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Streamlit lets any page of the same machine in, and asks another one for our address.
        if is_from_here(HTTPConnection(scope)) and await self._visitor(scope) is not None:
            await self._app(as_from_here(scope), receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._own_answer(request)
        await (response or self._app)(scope, receive, send)

    async def _own_answer(self, request: Request) -> Response | None:
        """Our own answer, or None where the application may answer."""
        path = request.url.path
        if path == LOGIN_PATH and request.method == "POST":
            return await self._login(request)
        if self._tokens.provider is not None and path in (START_PATH, CALLBACK_PATH):
            step = self._ask_provider if path == START_PATH else self._answered
            return await step(request, self._tokens.provider)
        if "token" in request.query_params:
            return await self._token_link(request)
        if path == METRICS_PATH and await self._by_bearer(request):
            return None
        account = await self._visitor(request.scope)
        if account is not None:
            request.scope[ACCOUNT] = account
            if path == LOGOUT_PATH:
                return await self._logout(request)
            if path == METRICS_PATH and not account.may("look"):
                return PlainTextResponse("Your role does not look at runs.\n", status_code=403)
            return _see_other("./") if path == LOGIN_PATH else _own_page(request, account)
        if path == LOGIN_PATH:
            return HTMLResponse(await self._page(then=request.query_params.get(THEN, "")))
        if is_page(request):
            return _see_other(_to_login(request))
        return PlainTextResponse("Not signed in.\n", status_code=401)

    async def _by_bearer(self, request: Request) -> bool:
        """Whether a program shows the access token, as those that gather metrics do."""
        kind, _, offered = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not offered:
            return False
        try:
            shown = partial(self._tokens.shown_by_program, offered.strip())
            return await self._guesses.take_turn(shown) is not None
        except TimeoutError:
            return False

    async def _token_link(self, request: Request) -> Response:
        """Sign in by the printed link, which no page of another site may have a browser follow."""
        if not is_from_here(request):
            return PlainTextResponse(LINK_ALONE, status_code=403)
        offered = request.query_params["token"]
        rest = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
        path = _here(request.url.path)
        target = f"{path}?{urlencode(rest)}" if rest else path
        return await self._admit(request, target, partial(self._tokens.open_by_token, offered))

    async def _login(self, request: Request) -> Response:
        fields = dict(parse_qsl((await read_body(request)).decode("utf-8", "replace")))
        if not is_from_here(request):
            return PlainTextResponse("Sign in on the dashboard's own page.\n", status_code=403)
        if fields.get("name"):
            name, password = fields["name"].strip(), fields.get("password", "")
            opened = partial(self._tokens.open_by_password, name, password)
            return await self._admit(request, _after(fields), opened, WRONG_PASSWORD, fields)
        offered = fields.get("token", "").strip()
        opened = partial(self._tokens.open_by_token, offered)
        return await self._admit(request, _after(fields), opened, WRONG_TOKEN, fields)

    async def _ask_provider(self, request: Request, provider: Provider) -> Response:
        """Send a visitor to the provider."""
        if not is_from_here(request):
            return PlainTextResponse("Sign in on the dashboard's own page.\n", status_code=403)
        start = partial(provider.start, request.query_params.get(THEN, ""))
        if self._too_many_ask():
            return HTMLResponse(await self._page(TOO_MANY), 429, {"retry-after": "30"})
        try:
            url, started = await self._at_provider(start)
        except ProviderError as error:
            return HTMLResponse(await self._page(NOT_KNOWN.format(error)), status_code=502)
        response = _see_other(url)
        held, kept = started.packed(), provider.encrypted
        self._keep(request, response, self._started, held, STARTED_SECONDS, encrypted=kept)
        return response

    async def _answered(self, request: Request, provider: Provider) -> Response:
        """Let a visitor in for whom the provider vouches, if there is an account of that name."""
        asked = request.query_params
        started = Started.unpacked(read_cookie(request.scope, self._started))
        if self._too_many_ask():
            return HTMLResponse(await self._page(TOO_MANY), 429, {"retry-after": "30"})
        try:
            finish = partial(
                provider.finish, started, asked.get("state", ""), asked.get("code", "")
            )
            name = await self._at_provider(finish)
            opened = partial(self._tokens.open_by_identity, name)
            cookie = await anyio.to_thread.run_sync(opened)
        except ProviderError as error:
            response: Response = HTMLResponse(await self._page(NOT_KNOWN.format(error)), 401)
        except StoreError as error:
            return PlainTextResponse(f"The store cannot answer: {error}\n", status_code=503)
        else:
            response = _see_other(_after({THEN: started.then if started else ""}))
            if cookie is None:
                response = HTMLResponse(await self._page(NO_ACCOUNT.format(name)), 403)
            else:
                named, kept = self._tokens.cookie, provider.encrypted
                self._keep(request, response, named, cookie, SESSION_SECONDS, encrypted=kept)
        response.delete_cookie(self._started)
        return response

    async def _at_provider(self, ask: Callable[[], FoundT]) -> FoundT:
        """Ask the provider in one of few threads, so that a slow one holds up nothing else."""
        return await anyio.to_thread.run_sync(ask, limiter=self._asking())

    def _asking(self) -> anyio.CapacityLimiter:
        self._askers = self._askers or anyio.CapacityLimiter(ASKED_AT_ONCE)  # of the event loop
        return self._askers

    def _too_many_ask(self) -> bool:
        return self._asking().statistics().tasks_waiting >= MOST_WAITING

    @property
    def _started(self) -> str:
        """Name of the cookie of a sign-in that has begun."""
        return f"{self._tokens.cookie}-started"

    @staticmethod
    def _keep(
        request: Request,
        response: Response,
        name: str,
        value: str,
        seconds: int,
        *,
        encrypted: bool = False,
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            httponly=True,
            samesite="lax",
            secure=encrypted or is_encrypted(request),
        )

    async def _admit(
        self,
        request: Request,
        target: str,
        opened: partial[str | None],
        wrong: str = WRONG_TOKEN,
        fields: Mapping[str, str] | None = None,
    ) -> Response:
        """Try what was offered when its turn comes, and open a session where it is right.

        Passwords have turns of their own: who guesses tokens holds up nobody who has one.
        """
        fields = fields or {}
        turns = self._passwords if fields.get("name") else self._guesses
        kept = {"then": fields.get(THEN, ""), "name": fields.get("name", "")}
        try:
            cookie = await turns.take_turn(opened)
        except TimeoutError:
            return HTMLResponse(await self._page(TOO_MANY, **kept), 429, {"retry-after": "30"})
        except StoreError as error:
            return PlainTextResponse(f"The store cannot answer: {error}\n", status_code=503)
        if cookie is None:
            return HTMLResponse(await self._page(wrong, **kept), status_code=401)
        response = _see_other(target)
        self._keep(request, response, self._tokens.cookie, cookie, SESSION_SECONDS)
        return response

    async def _logout(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("Sign out on the dashboard's own page.\n", status_code=403)
        value = read_cookie(request.scope, self._tokens.cookie)
        await anyio.to_thread.run_sync(self._tokens.close, value)
        response = _see_other(LOGIN_PATH.lstrip("/"))
        response.delete_cookie(self._tokens.cookie)
        return response

    async def _page(self, message: str = "", *, then: str = "", name: str = "") -> str:
        accounts = await anyio.to_thread.run_sync(self._tokens.has_accounts)
        provider = self._tokens.provider
        host = "" if provider is None else provider.host
        return login_page(message, accounts=accounts, then=then, name=name, provider=host)

    async def _visitor(self, scope: Scope) -> Member | None:
        value = read_cookie(scope, self._tokens.cookie)
        if not value:
            return None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            known = self._tokens.visitors.known(value)
            if known is not None:
                return known
        return await anyio.to_thread.run_sync(self._tokens.visitors.look_up, value)


def _here(path: str) -> str:
    """A path of this server as seen from beside it.

    What stands in front of it, as a proxy's own path does, is kept; another server is never meant.
    """
    return "./" + path.strip("/").rpartition("/")[2]


def _to_login(request: Request) -> str:
    going = request.url.path.strip("/")
    up = "../" * going.count("/")
    if not going and not request.url.query:
        return f"{up}login"
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{up}login?{urlencode({THEN: going + query})}"


def _after(fields: Mapping[str, str]) -> str:
    """Where a visitor goes who has signed in: a page of this server, whatever was sent."""
    path, _, query = fields.get(THEN, "").partition("?")
    if not re.fullmatch(r"[\w-]*", path, re.ASCII):
        return "./"
    # a link that someone sent must not sign its reader in as somebody else
    clean = urlencode([(key, value) for key, value in parse_qsl(query) if key != "token"])
    return f"./{path}?{clean}" if clean else f"./{path}"


def _own_page(request: Request, account: Member) -> Response | None:
    """A first page has the root's address, by whatever name; of others it is said that none is."""
    path = request.url.path.strip("/")
    if not path and is_page(request):
        return known_page()
    if not path or "/" in path or path == METRICS_PATH.strip("/") or not is_page(request):
        return None
    from fedlens.dashboard.widgets.pages import pages_for  # the pages stand on this module

    paths = [page.path for page in pages_for(account)]
    if paths and path == paths[0]:
        query = f"?{request.url.query}" if request.url.query else ""
        return _see_other(f"./{query}")
    if path in paths:
        return known_page()
    if path == LOGOUT_PATH.strip("/"):
        return None
    return HTMLResponse(NOT_FOUND, status_code=404)


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
