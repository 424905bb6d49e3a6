"""Nothing but the login page and the health check is answered without a session."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from urllib.parse import urlencode

import populated
import pytest
from serving import TOKEN, Served
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dashboard import auth
from dashboard.auth import SESSION_SECONDS, AuthMiddleware, SessionTokens
from dashboard.errors import DashboardError
from server.store import Store

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
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(auth, "WRONG_TOKEN_DELAY", 0)
    return TestClient(AuthMiddleware(inside, SessionTokens(TOKEN, 8501)), follow_redirects=False)


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
def test_strangers_get_nothing(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 401
    assert "inside" not in answer.text


def test_a_strangers_browser_is_led_to_the_login_page(client: TestClient) -> None:
    answer = client.get("/run", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    page = client.get("/login", headers=HTML)
    assert page.status_code == 200
    assert 'name="token"' in page.text


def test_the_health_check_is_open(client: TestClient) -> None:
    assert client.get("/_stcore/health").text == "inside"


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
    assert answer.headers["location"] == "/run?run=a+b"
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert client.get("/run?run=a+b").text == "inside"
    with client.websocket_connect("/_stcore/stream") as socket:
        assert socket.receive_text() == "inside"


def test_the_form_earns_a_cookie(client: TestClient) -> None:
    answer = client.post("/login", content=urlencode({"token": f" {TOKEN} "}))
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert client.get("/media/abc.png").text == "inside"
    assert client.get("/login").headers["location"] == "/"


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
    padding = "a=" + "x" * auth.LARGEST_FORM
    answer = client.post("/login", content=f"{padding}&{urlencode({'token': TOKEN})}")
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "///evil.example/x"])
def test_the_link_never_leads_elsewhere(client: TestClient, path: str) -> None:
    scope_path = f"http://testserver{path}?token={TOKEN}"
    location = client.get(scope_path).headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


FORGERIES: list[tuple[str, Callable[[str], str]]] = [
    ("nothing", lambda real: ""),
    ("dots", lambda real: ".."),
    ("the token itself", lambda real: TOKEN),
    ("a later end", lambda real: "9" + real),
    ("another nonce", lambda real: real.replace(real.split(".")[1], "0" * 16)),
    ("no signature", lambda real: real.rpartition(".")[0] + "."),
    ("a cut signature", lambda real: real[:-1]),
    ("letters for an end", lambda real: "x" + real),
    ("not ASCII", lambda real: "é." + real),
]


@pytest.mark.parametrize("forge", [f for _, f in FORGERIES], ids=[n for n, _ in FORGERIES])
def test_forged_cookies_are_refused(client: TestClient, forge: Callable[[str], str]) -> None:
    tokens = SessionTokens(TOKEN, 8501)
    real = tokens.issue()
    assert tokens.is_valid(real)
    assert not tokens.is_valid(forge(real))
    headers = {"cookie": f"fedlens-8501={forge(real)}".encode("utf-8", "replace")}
    assert client.get("/", headers=headers).status_code == 401  # type: ignore[arg-type]


def test_cookies_of_another_token_are_refused() -> None:
    assert not SessionTokens(TOKEN, 8501).is_valid(SessionTokens(TOKEN + "2", 8501).issue())


def test_cookies_run_out() -> None:
    now = 1_000_000.0
    tokens = SessionTokens(TOKEN, 8501, clock=lambda: now)
    cookie = tokens.issue()
    now += SESSION_SECONDS - 1
    assert tokens.is_valid(cookie)
    now += 2
    assert not tokens.is_valid(cookie)


def test_pages_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    answer = with_cookie(client, SessionTokens(TOKEN, 8501).issue()).get("/")
    policy = answer.headers.get_list("content-security-policy")
    assert len(policy) == 1
    assert "http" not in policy[0]
    assert "*" not in policy[0]
    assert answer.headers["x-own"] == "kept"


@pytest.mark.parametrize("token", ["", "short", "é" * 20])
def test_a_token_that_keeps_nobody_out_is_refused(token: str) -> None:
    with pytest.raises(DashboardError, match="at least 16"):
        SessionTokens(token, 8501)


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
