"""The SuperLink's gate answers each caller what they may ask, and nothing else."""

from __future__ import annotations

import logging

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from fedlens.deploy.gate import Gate
from fedlens.deploy.keys import Operators, new_token, token_line
from fedlens.deploy.layout import DeployError
from fedlens.deploy.status import read_token

FAR, HERE = ("203.0.113.9", 4000), ("127.0.0.1", 4000)


async def inside(scope, receive, send):
    await PlainTextResponse("inside")(scope, receive, send)


@pytest.fixture
def token(tmp_path) -> str:
    token = new_token()
    lines = token_line("alice", new_token()) + token_line("bob", token)
    (tmp_path / "operators").write_text(f"# name, hash\n{lines}garbage\n")
    return token


@pytest.fixture
def gate(tmp_path, token):
    pages = {"/metrics": lambda: ("text/plain", b"figures")}
    app = Gate(inside, operators=Operators(tmp_path / "operators"), pages=pages)
    return lambda place: TestClient(app, client=place, raise_server_exceptions=True)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("place", [FAR, HERE])
@pytest.mark.parametrize("action", ["start-run", "register-node", "stream-logs"])
@pytest.mark.law("deployment: control needs a token")
def test_only_an_operator_reaches_the_control_interface(gate, token, place, action):
    path = f"/v1/control/{action}"
    for headers in (
        {},
        bearer(""),
        bearer(token[:-1]),
        {"authorization": b"Bearer \xe9"},
        {"authorization": token},
    ):
        assert gate(place).post(path, headers=headers).status_code == 401
    assert gate(place).post(path, headers=bearer(token)).text == "inside"


def test_two_tokens_at_once_are_none(gate, token):
    headers = [("authorization", f"Bearer {token}"), ("authorization", "Bearer x")]
    assert gate(FAR).post("/v1/control/start-run", headers=headers).status_code == 401


def test_who_is_taken_out_of_the_list_is_out_at_once(gate, token, tmp_path):
    client = gate(FAR)
    assert client.post("/v1/control/list-runs", headers=bearer(token)).status_code == 200
    (tmp_path / "operators").write_text("")
    assert client.post("/v1/control/list-runs", headers=bearer(token)).status_code == 401
    (tmp_path / "operators").unlink()
    assert client.post("/v1/control/list-runs", headers=bearer(token)).status_code == 401


@pytest.mark.parametrize("path", ["/v1/runtime/acquire-task", "/v1/runtime/pull-messages"])
@pytest.mark.law("deployment: control needs a token")
def test_tasks_and_their_messages_are_for_this_machine(gate, token, path):
    assert gate(FAR).post(path, headers=bearer(token)).status_code == 403
    assert gate(HERE).post(path).text == "inside"


@pytest.mark.parametrize(
    "action", ["start-automation", "add-app", "get-login-details", "", "x/start-run"]
)
def test_what_operators_do_not_need_is_refused_to_them_too(gate, token, action):
    path = f"/v1/control/{action}"
    assert gate(FAR).post(path, headers=bearer(token)).status_code == 404


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
def test_who_comes_through_a_proxy_is_not_of_this_machine(gate, header):
    answer = gate(HERE).post("/v1/runtime/acquire-task", headers={header: "127.0.0.1"})
    assert answer.status_code == 403


@pytest.mark.law("deployment: control needs a token")
def test_no_node_registers_itself(gate):
    for place in (FAR, HERE):
        assert gate(place).post("/v1/fleet/register-node").status_code == 403
        assert gate(place).post("/v1/fleet/pull-messages").text == "inside"


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/openapi.json", "/v1/", "/V1/control/start-run", "//v1/control/start-run"],
)
def test_what_it_does_not_know_is_not_there(gate, token, path):
    for place in (FAR, HERE):
        assert gate(place).get(path, headers=bearer(token)).status_code == 404


def test_metrics_are_for_operators_and_this_machine(gate, token):
    assert gate(FAR).get("/health").text == "inside"
    assert gate(FAR).get("/metrics").status_code == 401
    assert gate(FAR).get("/metrics", headers=bearer(token)).text == "figures"
    assert gate(HERE).get("/metrics").text == "figures"
    assert gate(HERE).get("/metrics", headers=bearer(token + "x")).status_code == 401


def test_a_token_is_kept_hashed(tmp_path, token):
    assert token not in (tmp_path / "operators").read_text()


def test_no_strangers_text_gets_into_the_log(gate, caplog):
    with caplog.at_level(logging.WARNING):
        gate(FAR).post("/v1/control/%0A2026-11-24 operator alice: start-run")
        gate(FAR).post("/v1/control/start-run")
    said = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert said[1] == "refused start-run: it had no operator's token"
    assert "alice" not in said[0] and "\n" not in said[0]


def test_a_token_that_is_no_text_is_said_in_one_line(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(DeployError, match="holds no token"):
        read_token(path)
