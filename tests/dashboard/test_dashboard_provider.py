"""Sign-in through an identity provider: who it vouches for comes in by their own account alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from joserfc.jwk import RSAKey
from serving import TOKEN, start_dashboard, stop_dashboard
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from fedlens.cli import main
from fedlens.dashboard.access.auth import AuthMiddleware, SessionTokens
from fedlens.dashboard.access.provider import Provider, ProviderError, Started, read_provider
from fedlens.dashboard.widgets.options import DashboardError
from fedlens.foundation.errors import ExitStatus
from fedlens.store import Store

HERE = "http://testserver"
ANN = "ann@example.org"


@pytest.fixture
def served() -> Iterator[IdentityProvider]:
    with identity_provider() as made:
        yield made


@pytest.fixture
def provider(served: IdentityProvider) -> Provider:
    return Provider(served.address, CLIENT, SECRET, HERE)


@pytest.fixture
def client(store_at: tuple[str, Store], provider: Provider) -> TestClient:
    store = store_at[1]
    store.add_account(ANN, "annotator", actor="test")
    tokens = SessionTokens(TOKEN, 8501, store, provider=provider)
    return TestClient(AuthMiddleware(PlainTextResponse("inside"), tokens), follow_redirects=False)


def answer_of(url: str, who: str) -> str:
    """The path that the provider sends a visitor back to who says to be somebody."""
    sent = httpx.get(url, params={**dict(parse_qs_one(url)), "who": who})
    return sent.headers["location"].removeprefix(HERE)


def parse_qs_one(url: str) -> Iterator[tuple[str, str]]:
    for name, values in parse_qs(urlsplit(url).query).items():
        yield name, values[0]


def signed_in(client: TestClient, who: str, then: str = "") -> httpx.Response:
    begun = client.get("/login-provider", params={"then": then} if then else None)
    assert begun.status_code == 303
    return client.get(answer_of(begun.headers["location"], who))


def test_an_account_comes_in_by_its_identity_to_where_it_was_going(client: TestClient) -> None:
    assert "Sign in with 127.0.0.1" in client.get("/login").text
    answer = signed_in(client, ANN, "annotate?project=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "./annotate?project=1")
    assert client.get("/media/x").text == "inside"
    assert "fedlens-8501-started" not in client.cookies
    assert client.get("/logout").status_code == 303
    assert client.get("/media/x").status_code == 401


@pytest.mark.law("access: strangers see the login page only")
@pytest.mark.parametrize(
    "who", ["eve@example.org", "local", "boss@example.org", "<script>alert(1)</script>"]
)
def test_an_identity_without_an_account_stays_outside(
    client: TestClient, store_at: tuple[str, Store], who: str
) -> None:
    """That of the access token is none: anybody may call themselves so at a provider.

    Nor is one that an earlier start gave to the token's holder under another name.
    """
    for name in ("local", "boss@example.org"):
        store_at[1].owner_account(name)
    before = store_at[1].accounts()
    answer = signed_in(client, who)
    assert answer.status_code == 403 and "You have no account here" in answer.text
    assert "<script>" not in answer.text.partition("</style>")[2]
    assert client.get("/media/x").status_code == 401 and store_at[1].accounts() == before


def test_a_disabled_account_stays_outside(client: TestClient, store_at: tuple[str, Store]) -> None:
    store_at[1].set_disabled(ANN, True, actor="test")
    assert signed_in(client, ANN).status_code == 403
    assert client.get("/media/x").status_code == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://id.example.org"},
        {"aud": "another"},
        {"aud": ["another"], "azp": CLIENT},
        {"exp": int(time.time()) - 3600},
        {"nonce": "of another visitor"},
        {"email_verified": False},
        {"email": None},
        {"email": ""},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_an_identity_that_is_over_for_others_or_not_verified_is_refused(
    client: TestClient, served: IdentityProvider, changed: dict[str, object]
) -> None:
    served.changed = changed
    answer = signed_in(client, ANN)
    assert answer.status_code == 401 and "did not say who you are" in answer.text
    assert client.get("/media/x").status_code == 401


def test_an_identity_that_another_key_signed_is_refused(
    client: TestClient, served: IdentityProvider
) -> None:
    served.signed_by = RSAKey.generate_key(2048, {"kid": "one"})
    assert signed_in(client, ANN).status_code == 401
    assert client.get("/media/x").status_code == 401


def test_an_identity_that_its_public_key_or_nothing_signed_is_refused(
    served: IdentityProvider, provider: Provider
) -> None:
    """Whoever has the public key could sign by it, if that was taken for a shared secret."""
    _, started = provider.start()
    claims = {
        "iss": served.address, "aud": CLIENT, "sub": ANN, "email": ANN, "email_verified": True,
        "nonce": started.nonce, "iat": int(time.time()), "exp": int(time.time()) + 300,
    }  # fmt: skip
    public = served.key.as_pem(private=False)
    for said in ({"alg": "HS256", "kid": "one"}, {"alg": "none"}):
        signed = ".".join(_in_text(json.dumps(part).encode()) for part in (said, claims))
        seal = hmac.digest(public, signed.encode(), hashlib.sha256) if "kid" in said else b""
        forged = f"{signed}.{_in_text(seal)}"
        with pytest.raises(ProviderError, match="not signed by the provider"):
            provider._claims(forged)


def _in_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def test_a_new_key_of_the_provider_is_asked_for(
    client: TestClient, served: IdentityProvider
) -> None:
    assert signed_in(client, ANN).status_code == 303
    client.get("/logout")
    served.key = RSAKey.generate_key(2048, {"kid": "one"})
    assert signed_in(client, ANN).status_code == 303


@pytest.mark.parametrize("lost", ["state", "code", "cookie"])
def test_an_answer_to_another_question_signs_nobody_in(client: TestClient, lost: str) -> None:
    begun = client.get("/login-provider")
    path = answer_of(begun.headers["location"], ANN)
    if lost == "cookie":
        client.cookies.clear()
    else:
        path = path.replace(f"{lost}=", f"{lost}=x")
    assert client.get(path).status_code == 401
    assert client.get("/media/x").status_code == 401


def test_behind_tls_the_cookie_is_for_tls_alone(
    store_at: tuple[str, Store], served: IdentityProvider
) -> None:
    """Whatever the proxy says: the address in the file does."""
    store_at[1].add_account(ANN, "annotator", actor="test")
    provider = Provider(served.address, CLIENT, SECRET, "https://testserver")
    tokens = SessionTokens(TOKEN, 8501, store_at[1], provider=provider)
    client = TestClient(AuthMiddleware(PlainTextResponse("inside"), tokens), follow_redirects=False)
    begun = client.get("/login-provider")
    started = begun.cookies["fedlens-8501-started"]
    path = answer_of(begun.headers["location"], ANN).removeprefix("https://testserver")
    answer = client.get(path, headers={"cookie": f"fedlens-8501-started={started}"})
    said = [one for one in answer.headers.get_list("set-cookie") if one.startswith("fedlens-8501=")]
    assert answer.status_code == 303 and len(said) == 1 and "Secure" in said[0]


def test_a_code_is_good_once(client: TestClient) -> None:
    begun = client.get("/login-provider")
    path, held = answer_of(begun.headers["location"], ANN), dict(client.cookies)
    assert client.get(path).status_code == 303
    client.cookies.clear()
    client.cookies.update(held)
    assert client.get(path).status_code == 401


def test_who_cancels_at_the_provider_is_told_so(client: TestClient) -> None:
    begun = client.get("/login-provider")
    state = dict(parse_qs_one(begun.headers["location"]))["state"]
    answer = client.get("/login-answer", params={"error": "access_denied", "state": state})
    assert answer.status_code == 401 and "refused or cancelled there" in answer.text


def test_an_account_has_a_password_or_none(
    store_at: tuple[str, Store], capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["accounts", "add", "--store", store_at[0], ANN, "--no-password", "--password-stdin"]
    assert main(both) == ExitStatus.WRONG_USE
    assert "--no-password and --password-stdin: give one" in capsys.readouterr().err


def test_another_site_has_no_browser_begin_a_sign_in(client: TestClient) -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert client.get("/login-provider", headers=headers).status_code == 403


def test_a_provider_that_is_away_is_said(store_at: tuple[str, Store]) -> None:
    away = Provider("http://127.0.0.1:9", CLIENT, SECRET, HERE)
    tokens = SessionTokens(TOKEN, 8501, store_at[1], provider=away)
    client = TestClient(AuthMiddleware(PlainTextResponse("inside"), tokens))
    answer = client.get("/login-provider")
    assert answer.status_code == 502 and "cannot be reached" in answer.text
    assert SECRET not in repr(away) + answer.text


def test_a_page_without_end_of_a_provider_is_not_read_to_its_end(
    served: IdentityProvider, provider: Provider
) -> None:
    served.padding = 2**21
    with pytest.raises(ProviderError, match="too long"):
        provider.start()
    served.padding = 0
    with pytest.raises(ProviderError, match="cannot be reached"):
        provider.start()  # it is not asked again at once
    provider._forget("metadata")
    assert provider.start()[0].startswith(served.address)


def test_an_identity_without_end_is_not_read_to_its_end(
    client: TestClient, served: IdentityProvider
) -> None:
    served.longer = 2**21
    answer = signed_in(client, ANN)
    assert answer.status_code == 401 and "too long" in answer.text
    served.longer = 0
    assert signed_in(client, ANN).status_code == 303


def test_without_a_provider_its_addresses_are_no_pages(store_at: tuple[str, Store]) -> None:
    client = TestClient(
        AuthMiddleware(PlainTextResponse("inside"), SessionTokens(TOKEN, 8501, store_at[1])),
        follow_redirects=False,
    )
    for path in ("/login-provider", "/login-answer?state=a&code=b"):
        assert client.get(path).status_code == 401
    assert "Sign in with" not in client.get("/login").text


def test_a_cookie_of_somebody_else_is_read_as_nothing() -> None:
    started = Started("a", "b", "c", "d")
    assert Started.unpacked(started.packed()) == started
    for value in ("", "x", "e30=", "W10=", "eyJzdGF0ZSI6MX0="):
        assert Started.unpacked(value) is None


GOOD = 'issuer = "https://id.example.org"\nclient_id = "a"\nclient_secret = "b"\n'
GOOD += 'address = "https://lens.example.org/fedlens"\n'


@pytest.mark.parametrize(
    ("text", "mode", "fix"),
    [
        (GOOD, 0o644, "chmod 600"),
        ("issuer =", 0o600, "no TOML"),
        (GOOD + 'scope = "x"\n', 0o600, "scope is unknown: it takes issuer, client_id"),
        (GOOD.replace('"b"', '""'), 0o600, "give client_secret as a text"),
        (GOOD.replace('"b"', "3"), 0o600, "give client_secret as a text"),
        (GOOD.replace("https://id", "http://id"), 0o600, "begins with https://"),
    ],
)
def test_a_registration_that_cannot_be_used_is_refused_with_the_fix(
    tmp_path: Path, text: str, mode: int, fix: str
) -> None:
    path = tmp_path / "oidc.toml"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(DashboardError, match=fix):
        read_provider(path)
    path.write_text(GOOD)
    path.chmod(0o600)
    assert read_provider(path).claim == "email"
    with pytest.raises(DashboardError, match="there is no such file"):
        read_provider(tmp_path / "none.toml")


@pytest.mark.browser
def test_people_sign_in_through_the_provider_in_a_browser(
    browser, served: IdentityProvider, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    url, store = store_at
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_port = taken.getsockname()[1]
    added = ["accounts", "add", "--store", url, ANN, "--role", "reviewer", "--no-password"]
    assert main(added) == ExitStatus.DONE
    path = tmp_path / "oidc.toml"
    path.write_text(
        f'issuer = "{served.address}"\nclient_id = "{CLIENT}"\nclient_secret = "{SECRET}"\n'
        f'address = "http://127.0.0.1:{free_port}"\n'
    )
    path.chmod(0o600)
    dashboard = start_dashboard(url, tmp_path, free_port, provider=path)
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(f"{dashboard.address}/login")
        page.get_by_role("link", name="Sign in with").click()
        page.get_by_label("Who are you").fill("eve@example.org")
        page.get_by_role("button").click()
        page.get_by_text("You have no account here").wait_for()
        page.get_by_role("link", name="Sign in with").click()
        page.get_by_label("Who are you").fill(ANN)
        page.get_by_role("button").click()
        page.get_by_text(f"Signed in as {ANN} (reviewer)").wait_for()
    finally:
        context.close()
        said = stop_dashboard(dashboard)
    assert SECRET not in said and store.place
