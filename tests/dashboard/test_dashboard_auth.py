"""Nothing but the login page and the health check is answered without a session."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import anyio
import httpx
import populated
import pytest
from serving import TOKEN, Served
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from fedlens.dashboard.access import auth
from fedlens.dashboard.access.auth import SESSION_SECONDS, AuthMiddleware, SessionTokens
from fedlens.dashboard.access.requests import LARGEST_FORM
from fedlens.dashboard.widgets.options import DashboardError
from fedlens.store import Store, accounts

HTML = {"accept": "text/html"}


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    """What the middleware guards: says "inside" over http and websocket."""
    if scope["type"] == "websocket":
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.send_text("inside")
        await socket.close()
    else:
        headers = {"content-security-policy": "default-src *", "x-own": "kept"}
        await PlainTextResponse("inside", headers=headers)(scope, receive, send)


@pytest.fixture
def store(store_at: tuple[str, Store]) -> Store:
    return store_at[1]


@pytest.fixture
def tokens(store: Store) -> SessionTokens:
    return SessionTokens(TOKEN, 8501, store)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tokens: SessionTokens) -> TestClient:
    monkeypatch.setattr(auth, "WRONG_DELAY", 0)
    return TestClient(AuthMiddleware(inside, tokens), follow_redirects=False)


def issued(tokens: SessionTokens) -> str:
    cookie = tokens.open_by_token(TOKEN)
    assert cookie is not None
    return cookie


def with_cookie(client: TestClient, value: str) -> TestClient:
    client.cookies.set("fedlens-8501", value)
    return client


PATHS = (
    "/",
    "/run?run=1",
    "/media/abc.png",
    "/static/js/index.js",
    "/_stcore/host-config",
    "/_stcore/health/",
    "/_stcore/healthy",
    "/_stcore/upload_file/x/y",
    "/login/",
    "//login",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.law("access: strangers see the login page only")
def test_strangers_get_nothing(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 401
    assert "inside" not in answer.text


def test_a_strangers_browser_is_led_to_the_login_page(client: TestClient) -> None:
    answer = client.get("/run", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "login?then=run")
    page = client.get("/login", headers=HTML)
    assert page.status_code == 200
    assert 'name="token"' in page.text


def test_the_health_check_is_open(client: TestClient) -> None:
    assert client.get("/_stcore/health").text == "inside"


def test_metrics_need_the_access_token_and_it_opens_nothing_else(client: TestClient) -> None:
    right, wrong = ({"authorization": f"Bearer {token}"} for token in (TOKEN, TOKEN[:-1] + "x"))
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=wrong).status_code == 401
    assert client.get("/metrics", headers=right).text == "inside"
    assert client.get("/", headers=right).status_code == 401


def test_strangers_get_no_websocket(client: TestClient) -> None:
    for session in (client, with_cookie(client, "1.2.3")):
        with (
            pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
            session.websocket_connect("/_stcore/stream"),
        ):
            pass


def test_the_link_earns_a_cookie_and_leaves_no_token_behind(client: TestClient) -> None:
    answer = client.get(f"/run?run=a%20b&token={TOKEN}", headers=HTML)
    assert answer.status_code == 303
    assert answer.headers["location"] == "./run?run=a+b"
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert client.get("/run?run=a+b").text == "inside"
    with client.websocket_connect("/_stcore/stream") as socket:
        assert socket.receive_text() == "inside"


def test_the_form_earns_a_cookie(client: TestClient) -> None:
    answer = client.post("/login", content=urlencode({"token": f" {TOKEN} "}))
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert client.get("/media/abc.png").text == "inside"
    assert client.get("/login").headers["location"] == "./"


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 20])
def test_a_wrong_token_earns_nothing(client: TestClient, wrong: str) -> None:
    answers = [
        client.get("/", params={"token": wrong}, headers=HTML),
        client.post("/login", content=urlencode({"token": wrong})),
    ]
    for answer in answers:
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
    assert client.get("/").status_code == 401


def test_a_form_without_end_is_not_read(client: TestClient) -> None:
    padding = "a=" + "x" * LARGEST_FORM
    answer = client.post("/login", content=f"{padding}&{urlencode({'token': TOKEN})}")
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "///evil.example/x"])
def test_the_link_never_leads_elsewhere(client: TestClient, path: str) -> None:
    scope_path = f"http://testserver{path}?token={TOKEN}"
    location = client.get(scope_path).headers["location"]
    assert (
        urlsplit(urljoin("http://testserver/", location.replace("\\", "/"))).netloc == "testserver"
    )


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ("samples?run=a+b&class=3", "./samples?run=a+b&class=3"),
        ("", "./"),
        ("run?token=of-another&run=a", "./run?run=a"),
        ("//evil.example", "./"),
        ("https://evil.example/x", "./"),
        ("/\\evil.example", "./"),
    ],
)
def test_signing_in_leads_to_where_one_was_going_on_this_server_alone(
    client: TestClient, asked: str, target: str
) -> None:
    answer = client.post("/login", data={"token": TOKEN, "then": asked}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, target)


def test_a_proxy_may_ask_under_another_host_and_no_other_site(client: TestClient) -> None:
    public = {"x-forwarded-host": "lab.example"}
    shown, own = {"origin": "https://lab.example"}, {"origin": "http://localhost:80"}
    other = {"origin": "http://localhost:81"}
    for headers, status in (
        (shown, 403),
        (shown | public, 303),
        (own, 403),
        (own | public, 303),  # one that forwards a port names that, in place of the page's own
        (other | public, 403),
    ):
        answer = client.post(
            "/login", data={"token": TOKEN}, headers=headers, follow_redirects=False
        )
        assert answer.status_code == status


FORGERIES: list[tuple[str, Callable[[str], str]]] = [
    ("nothing", lambda real: ""),
    ("dots", lambda real: ".."),
    ("the token itself", lambda real: TOKEN),
    ("its digest", lambda real: hashlib.sha256(real.encode()).hexdigest()),
    ("another letter", lambda real: ("a" if real[0] != "a" else "b") + real[1:]),
    ("cut", lambda real: real[:-1]),
    ("more", lambda real: real + "a"),
    ("a statement", lambda real: "x' OR '1'='1"),
    ("not ASCII", lambda real: "é" + real),
]


@pytest.mark.parametrize("forge", [f for _, f in FORGERIES], ids=[n for n, _ in FORGERIES])
@pytest.mark.law("access: strangers see the login page only")
def test_forged_cookies_are_refused(
    client: TestClient, tokens: SessionTokens, forge: Callable[[str], str]
) -> None:
    real = issued(tokens)
    assert with_cookie(client, real).get("/").text == "inside"
    client.cookies.clear()
    headers = {"cookie": f"fedlens-8501={forge(real)}".encode("utf-8", "replace")}
    assert client.get("/", headers=headers).status_code == 401  # type: ignore[arg-type]


@pytest.mark.law("access: no secret is stored or logged")
def test_the_store_holds_no_cookie_and_no_password(
    store_at: tuple[str, Store], tokens: SessionTokens
) -> None:
    cookie = issued(tokens)
    store_at[1].add_account("ann", "annotator", "correct horse", actor="test")
    held = Path(store_at[0].removeprefix("sqlite:///"))
    content = b"".join(path.read_bytes() for path in held.parent.glob(f"{held.name}*"))
    assert cookie.encode() not in content
    assert b"correct horse" not in content


def test_sessions_run_out(tokens: SessionTokens, client: TestClient, monkeypatch) -> None:
    cookie = issued(tokens)
    now = accounts.utc_now()
    for seconds, status in ((SESSION_SECONDS - 60, 200), (SESSION_SECONDS + 1, 401)):
        moment = now + timedelta(seconds=seconds)
        monkeypatch.setattr(accounts, "utc_now", lambda moment=moment: moment)
        tokens.visitors.forget(cookie)
        assert with_cookie(client, cookie).get("/").status_code == status


def test_a_session_outlives_the_process(store: Store, client: TestClient) -> None:
    before = SessionTokens("another token of the process before", 8501, store)
    cookie = before.open_by_token("another token of the process before")
    assert with_cookie(client, str(cookie)).get("/").text == "inside"


def test_a_name_with_its_password_earns_a_cookie(client: TestClient, store: Store) -> None:
    assert 'name="password"' not in client.get("/login", headers=HTML).text
    store.add_account("ann", "annotator", "correct horse", actor="test")
    assert 'name="password"' in client.get("/login", headers=HTML).text
    for name, password in (("ann", "wrong horse"), ("bob", "correct horse"), ("ann", "")):
        form = urlencode({"name": name, "password": password})
        answer = client.post("/login", content=form)
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        assert "Wrong name or password" in answer.text
    form = urlencode({"name": "ann", "password": "correct horse"})
    assert client.post("/login", content=form).status_code == 303
    assert client.get("/").text == "inside"


def test_signing_out_ends_the_session(client: TestClient, tokens: SessionTokens) -> None:
    cookie = issued(tokens)
    headers = {"cookie": f"fedlens-8501={cookie}"}
    elsewhere = headers | {"sec-fetch-site": "cross-site"}
    assert client.get("/logout", headers=elsewhere).status_code == 403
    assert client.get("/", headers=headers).text == "inside"
    assert client.get("/logout", headers=headers).headers["location"] == "login"
    assert client.get("/", headers=headers).status_code == 401


def test_a_disabled_account_is_out_at_once(
    client: TestClient, tokens: SessionTokens, store: Store
) -> None:
    store.add_account("ann", "annotator", "correct horse", actor="test")
    cookie = tokens.open_by_password("ann", "correct horse")
    assert cookie is not None
    store.set_disabled("ann", True, actor="test")
    assert with_cookie(client, cookie).get("/").status_code == 401
    assert tokens.open_by_password("ann", "correct horse") is None
    store.set_disabled("ann", False, actor="test")
    assert with_cookie(client, cookie).get("/").status_code == 401
    assert tokens.open_by_password("ann", "correct horse") is not None


def test_a_link_on_another_site_tries_no_token(client: TestClient) -> None:
    for token in (TOKEN, "wrong"):
        answer = client.get(f"/?token={token}", headers={"sec-fetch-site": "cross-site"})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    own = client.get(f"/?token={TOKEN}", headers={"sec-fetch-site": "none"})
    assert (own.status_code, "set-cookie" in own.headers) == (303, True)


def test_who_guesses_tokens_holds_up_no_password(tokens: SessionTokens, store: Store) -> None:
    store.add_account("ann", "annotator", "correct horse", actor="test")
    guarded = AuthMiddleware(inside, tokens)

    async def sign_in() -> int:
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as visitor:
            guarded._guesses._turn = anyio.Lock()
            async with guarded._guesses._turn:  # somebody's try of a token goes on
                with anyio.fail_after(60):
                    form = {"name": "ann", "password": "correct horse"}
                    return (await visitor.post("/login", data=form)).status_code

    assert anyio.run(sign_in) == 303


def test_metrics_are_for_who_may_look_at_runs(
    client: TestClient, tokens: SessionTokens, store: Store
) -> None:
    for name, role, status in (("ann", "annotator", 403), ("eve", "viewer", 200)):
        store.add_account(name, role, "correct horse", actor="test")
        cookie = tokens.open_by_password(name, "correct horse")
        headers = {"cookie": f"fedlens-8501={cookie}"}
        assert client.get("/metrics", headers=headers).status_code == status


def test_a_form_of_another_site_is_refused(client: TestClient) -> None:
    form = urlencode({"token": TOKEN})
    answer = client.post("/login", content=form, headers={"origin": "https://evil.example"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    own = {"origin": "http://testserver"}
    assert client.post("/login", content=form, headers=own).status_code == 303


@pytest.mark.law("access: rights are checked at every action")
def test_wrong_tries_in_parallel_wait_for_each_other() -> None:
    tries: list[float] = []

    async def guess() -> None:
        limit = auth.GuessLimit()
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(limit.take_turn, lambda: tries.append(time.monotonic()))

    began = time.monotonic()
    anyio.run(guess)
    assert time.monotonic() - began >= 3.9 * auth.WRONG_DELAY
    gaps = [later - before for before, later in itertools.pairwise(tries)]
    # a busy machine may be late with one and not with the next
    assert min(gaps) >= 0.5 * auth.WRONG_DELAY


def test_who_waits_too_long_is_turned_away_unchecked(monkeypatch) -> None:
    monkeypatch.setattr(auth, "LONGEST_WAIT", 0.1)
    refused = []

    async def guess() -> None:
        limit = auth.GuessLimit()

        async def one() -> None:
            try:
                await limit.take_turn(lambda: None)
            except TimeoutError:
                refused.append(1)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)

    anyio.run(guess)
    assert len(refused) == 2


def test_pages_may_load_nothing_from_elsewhere(client: TestClient, tokens: SessionTokens) -> None:
    answer = with_cookie(client, issued(tokens)).get("/")
    policy = answer.headers.get_list("content-security-policy")
    assert len(policy) == 1
    assert "http" not in policy[0]
    assert "*" not in policy[0]
    assert answer.headers["x-own"] == "kept"


@pytest.mark.parametrize("token", ["", "short", "é" * 20])
def test_a_token_that_keeps_nobody_out_is_refused(store: Store, token: str) -> None:
    with pytest.raises(DashboardError, match="at least 16"):
        SessionTokens(token, 8501, store)


def fetch(served: Served, path: str, cookie: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", path, headers={"cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    answer.read()
    return answer


def test_the_served_dashboard_asks_for_a_session(
    store_at: tuple[str, Store], served: Served
) -> None:
    populated.whole_run(store_at[1])
    stream = f"ws://127.0.0.1:{served.port}/_stcore/stream"
    for path in ("/", "/run", "/media/abc.png", "/_stcore/host-config", "/static/x.js"):
        assert fetch(served, path).status == 401
        assert fetch(served, path, f"fedlens-{served.port}=1.2.3").status == 401
    with pytest.raises(InvalidStatus, match="403"):
        connect(stream)
    cookie = fetch(served, f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    assert fetch(served, "/", cookie).status == 200
    assert fetch(served, "/_stcore/host-config", cookie).status == 200
    with connect(stream, additional_headers={"cookie": cookie}, origin=served.address):  # type: ignore[arg-type]
        pass
    assert fetch(served, "/_stcore/health").status == 200
