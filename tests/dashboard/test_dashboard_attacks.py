"""Attacks on sessions and roles: by strangers, by people signed in, by those who no longer may."""

from __future__ import annotations

import ast
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import anyio
import populated
import pytest
from serving import TOKEN
from starlette.applications import Starlette
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from streamlit.testing.v1 import AppTest
from test_dashboard_auth import inside

from fedlens import dashboard
from fedlens.dashboard.access import account, auth
from fedlens.dashboard.access.account import require_later
from fedlens.dashboard.access.auth import AuthMiddleware, SessionTokens
from fedlens.dashboard.labelling.desk_api import desk_routes
from fedlens.dashboard.widgets.markup import plain
from fedlens.store import Role, Store, StoreError

Opener = Callable[..., AppTest]
PASSWORD = "correct horse"


@pytest.fixture
def store(store_at: tuple[str, Store]) -> Store:
    return store_at[1]


@pytest.fixture
def tokens(store: Store, monkeypatch: pytest.MonkeyPatch) -> SessionTokens:
    monkeypatch.setattr(auth, "WRONG_DELAY", 0)
    return SessionTokens(TOKEN, 8501, store)


def client(tokens: SessionTokens, cookie: str | None = None, **more: str) -> TestClient:
    made = TestClient(AuthMiddleware(inside, tokens), follow_redirects=False, **more)  # type: ignore[arg-type]
    if cookie is not None:
        made.cookies.set("fedlens-8501", cookie)
    return made


def sign_in(store: Store, tokens: SessionTokens, role: Role) -> str:
    store.add_account("eve", role, PASSWORD, actor="test")
    cookie = tokens.open_by_password("eve", PASSWORD)
    assert cookie is not None
    return cookie


@pytest.mark.parametrize("end", ["disabled", "viewer", "everywhere", "password"])
@pytest.mark.law("access: rights are checked at every action")
def test_who_was_seen_a_moment_ago_is_asked_for_again(
    store: Store, tokens: SessionTokens, end: str
) -> None:
    """An answer is not stored for somebody who may not label since a moment ago."""
    cookie = sign_in(store, tokens, "annotator")
    populated.whole_run(store)
    desk = TestClient(AuthMiddleware(Starlette(routes=desk_routes(store)), tokens))
    desk.cookies.set("fedlens-8501", cookie)
    project, headers = populated.add_project(store), {"x-fedlens-desk": "1"}
    desk.get("/anything")  # remembers who that is
    assert desk.post(f"/desk/{project}/sync", json={}, headers=headers).status_code == 409
    if end == "disabled":
        store.set_disabled("eve", True, actor="test")
    elif end == "viewer":
        store.set_role("eve", "viewer", actor="test")
    elif end == "everywhere":
        store.sign_out_everywhere("eve", actor="test")
    else:
        store.set_password("eve", "another horse", actor="test")
    status = desk.post(f"/desk/{project}/sync", json={}, headers=headers).status_code
    assert status == (403 if end == "viewer" else 401)


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://127.0.0.1:8502", "https://evil.example", "null"]
)
@pytest.mark.law("access: strangers see the login page only")
def test_another_page_s_websocket_is_refused(
    store: Store, tokens: SessionTokens, origin: str
) -> None:
    """Cookies go to every port of a machine; Streamlit itself takes any page of it."""
    opened = client(tokens, sign_in(store, tokens, "admin"))
    with (
        pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
        opened.websocket_connect("/_stcore/stream", headers={"origin": origin}),
    ):
        pass
    with opened.websocket_connect("/", headers={"origin": "http://testserver"}) as socket:
        assert socket.receive_text() == "inside"


@pytest.mark.parametrize("headers", [{"x-forwarded-proto": "https"}, {"origin": "https://dash"}])
def test_behind_tls_the_cookie_stays_within_tls(
    tokens: SessionTokens, headers: dict[str, str]
) -> None:
    form = urlencode({"token": TOKEN})
    said = client(tokens).post("/login", content=form, headers=headers | {"host": "dash"})
    assert "Secure" in said.headers["set-cookie"]
    plain_ = client(tokens).post("/login", content=form)
    assert "Secure" not in plain_.headers["set-cookie"]


def test_how_long_a_wrong_try_takes_tells_nothing() -> None:
    async def seconds(work: float) -> float:
        limit, began = auth.GuessLimit(), anyio.current_time()
        await limit.take_turn(lambda: time.sleep(work))
        return anyio.current_time() - began

    taken = [anyio.run(seconds, work) for work in (0.0, 0.2)]
    assert abs(taken[0] - taken[1]) < 0.1
    assert min(taken) >= 0.99 * auth.WRONG_DELAY


def test_refused_tries_are_in_the_log_once_a_day(store: Store, tokens: SessionTokens) -> None:
    store.add_account("eve", "admin", PASSWORD, actor="test")
    for _ in range(3):
        assert tokens.open_by_password("eve", "wrong") is None
        assert tokens.open_by_password("correct horse", "typed in the wrong field") is None
        assert tokens.open_by_token("x" * 20) is None
    said = [(one.actor, one.action, one.subject) for one in store.log_entries()]
    assert sorted(said[:-1]) == [
        ("login page", "access token refused", ""),
        ("login page", "sign-in refused", "eve"),
    ]


def test_a_thousand_letters_of_any_script_can_be_a_password(
    store: Store, tokens: SessionTokens
) -> None:
    password = "ü" * 1000
    store.add_account("eve", "viewer", password, actor="test")
    form = urlencode({"name": "eve", "password": password})
    assert client(tokens).post("/login", content=form).status_code == 303


def test_a_person_changes_their_own_password_with_the_present_one(
    store_at: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, store = store_at
    monkeypatch.setenv("FEDLENS_STORE", url)
    monkeypatch.setattr(account, "WRONG_SECONDS", 0)
    eve = store.add_account("eve", "viewer", PASSWORD, actor="test")
    session = store.sign_in(eve, 60)
    assert not account.change_password(eve, "wrong", "another horse")
    assert store.log_entries()[0].action == "sign-in refused"
    assert store.signed_in(session) == eve
    with pytest.raises(StoreError, match="password of 5 characters"):
        account.change_password(eve, PASSWORD, "short")
    assert account.change_password(eve, PASSWORD, "another horse")
    assert store.signed_in(session) is None
    assert store.check_password("eve", "another horse") == eve


@pytest.mark.law("access: rights are checked at every action")
def test_the_last_admin_stays(store: Store) -> None:
    for name in ("ann", "bob"):
        store.add_account(name, "admin", PASSWORD, actor="test")
    store.set_disabled("ann", True, actor="bob")
    for attempt in (
        lambda: store.set_disabled("bob", True, actor="test"),
        lambda: store.set_role("bob", "viewer", actor="test"),
    ):
        with pytest.raises(StoreError, match="the last admin"):
            attempt()
    store.set_disabled("ann", False, actor="test")
    store.set_role("bob", "viewer", actor="test")
    assert [one.role for one in store.accounts()] == ["admin", "viewer"]


@pytest.mark.parametrize("name", ["ANN", "ann ", "ａｎｎ", "an\u202en", "a\nb", "<b>", "ann'--"])
def test_names_that_pass_for_another_are_refused(store: Store, name: str) -> None:
    store.add_account("ann", "viewer", PASSWORD, actor="test")
    with pytest.raises(StoreError, match="name = "):
        store.add_account(name, "viewer", PASSWORD, actor="test")


def test_an_open_team_page_does_not_undo_what_was_done_meanwhile(
    open_page: Opener, store: Store
) -> None:
    store.add_account("tester", "admin", actor="test")
    for name in ("ann", "bob"):
        store.add_account(name, "engineer", actor="test")
    app = open_page("team")
    # Elsewhere both lose what they had; the page still shows the old state, and is used.
    store.set_role("ann", "viewer", actor="other")
    store.set_disabled("bob", True, actor="other")
    next(b for b in app.button if b.label == "Disable" and not b.disabled).click()
    bob = {one.name: one for one in store.accounts()}["bob"]
    next(b for b in app.button if b.key.endswith(f"able-{bob.user_id}")).click().run()
    assert not app.exception
    after = {one.name: one for one in store.accounts()}
    assert after["ann"].role == "viewer"
    assert after["bob"].disabled


def test_who_may_not_export_any_more_gets_no_file_from_an_open_page(
    store_at: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download's file is made when it is asked for, outside of the page."""
    url, store = store_at
    monkeypatch.setenv("FEDLENS_STORE", url)
    monkeypatch.setenv("FEDLENS_DASHBOARD_USER", "tester")
    store.add_account("tester", "reviewer", actor="test")
    allowed = require_later("review")
    assert allowed().name == "tester"
    store.set_role("tester", "annotator", actor="test")
    with pytest.raises(StoreError, match="does not allow"):
        allowed()


def test_parts_that_renew_themselves_ask_who_looks() -> None:
    """Streamlit runs a fragment again without the page around it, and its check, first."""
    found = 0
    for path in Path(dashboard.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        for name in _fragments(tree):
            found += 1
            assert "require(" in ast.unparse(functions[name]), f"{path.name}: {name}"
    assert found >= 3


def test_downloads_ask_who_asks_for_them() -> None:
    """Streamlit makes a deferred file outside of the page, and of its check."""
    found = 0
    for path in Path(dashboard.__file__).parent.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        if "download_button(" in code:
            found += 1
            assert "require_later(" in code, path.name
    assert found >= 2


def _fragments(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names |= {node.name for one in node.decorator_list if "fragment" in ast.unparse(one)}
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "st.fragment" and node.args:
            names.add(ast.unparse(node.args[0]))
    return names


def test_a_demoted_viewer_s_open_page_shows_no_more(open_page: Opener, store: Store) -> None:
    populated.whole_run(store)
    store.add_account("tester", "viewer", actor="test")
    app = open_page("runs")
    assert app.title[0].value == "Runs"
    store.set_role("tester", "annotator", actor="test")
    app.run()
    assert "Runs" not in {one.value for one in app.title}


MARKUP = "[sign in again](https://evil.example) ![x](https://evil.example/x) :red[x] <b>x</b> `y`"


def test_the_address_puts_no_links_onto_a_page(open_page: Opener, store: Store) -> None:
    populated.whole_run(store)
    app = open_page("run", run=MARKUP)
    (warning,) = [one.value for one in app.warning if "There is no run" in one.value]
    assert plain(MARKUP) in warning
    assert "](" not in warning


def test_a_project_s_name_is_no_shell_command(open_page: Opener, store: Store) -> None:
    populated.whole_run(store)
    name = "it's $(reboot) `reboot`"
    project = populated.add_project(store, name=name)
    user = store.ensure_user("ann")
    (sample,) = store.queue(project, user, 1)
    populated_answer(store, project, user, sample.sample_id)
    app = open_page("results", project=str(project))
    (shown,) = [one.value for one in app.code]
    assert shown.split(" --project ")[1] == "'it'\"'\"'s $(reboot) `reboot`' --curve"


def populated_answer(store: Store, project: int, user: int, sample: int) -> None:
    from fedlens.store import Annotation

    label = store.labels(project)[0].label_id
    store.annotate(
        Annotation(
            client_uuid=str(uuid.uuid4()),
            project_id=project,
            sample_id=sample,
            user_id=user,
            label_id=label,
        )
    )
