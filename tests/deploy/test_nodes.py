"""Nodes whose key lies in the SuperLink's folder may take part; Flower's own link state says so."""

from __future__ import annotations

import json
import os
import stat
from types import SimpleNamespace

import pytest
from flwr.app import Message, RecordDict
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedlens.accountant.noise import TEST_MODE_VARIABLE
from fedlens.client.app import build_client_app
from fedlens.client.users.protocol import NodeDataError
from fedlens.deploy import services
from fedlens.deploy.bundles import COMPONENTS
from fedlens.deploy.keys import new_node_key, read_public_key
from fedlens.deploy.layout import NodeSettings, read_folder
from fedlens.deploy.metrics import NodeCounts, node_metrics, server_metrics
from fedlens.deploy.status import run_reports, status_lines
from fedlens.deploy.superlink import Nodes, Service
from fedlens.deploy.supernode import guard_pull, judge_bundles
from fedlens.foundation.logs import set_up_logs
from fedlens.server.federation.names import name_of
from fedlens.simulations.transports.inprocess import InProcessGrid


@pytest.fixture
def state():
    manager = NoOpFederationManager()
    store = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    return LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, store).state()


def key_in(folder, name):
    path = folder / f"{name}.pub"
    path.write_bytes(new_node_key(name).public)
    return read_public_key(path)


@pytest.mark.law("deployment: no machine holds another one's secrets")
def test_a_key_is_admitted_and_shut_out_by_its_file(state, tmp_path):
    nodes, key = Nodes(tmp_path), key_in(tmp_path, "north")
    nodes.look(state)
    identity = state.get_node_id_by_public_key(key)
    assert identity
    nodes.look(state)  # again without effect
    assert nodes.seen(state) == [{"name": "north", "status": "registered"}]
    assert state.activate_node(identity, 30)
    assert nodes.seen(state)[0]["status"] == "online"
    (tmp_path / "north.pub").unlink()
    nodes.look(state)
    assert state.get_node_id_by_public_key(key) is None and nodes.seen(state) == []


def test_runs_call_nodes_by_the_names_of_their_keys(state, tmp_path, monkeypatch):
    """Not by a position, which begins at 0 where names begin at 1."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path))
    (tmp_path / "nodes").mkdir()
    identity = None
    for name in ("node-1", "node-2"):
        key = key_in(tmp_path / "nodes", name)
        service = Service(tmp_path)
        service._look(state)
        identity = state.get_node_id_by_public_key(key)
    assert name_of(identity, 1) == "node-2"
    assert name_of(77, 1) == "node 1"  # of no SuperLink's
    assert stat.S_IMODE((tmp_path / "node-names.json").stat().st_mode) == 0o600


def test_a_file_that_is_no_key_is_named_and_others_are_admitted(state, tmp_path):
    nodes, key = Nodes(tmp_path), key_in(tmp_path, "north")
    (tmp_path / "south.pub").write_text("junk")
    (tmp_path / "west.pub").write_bytes((tmp_path / "north.pub").read_bytes())
    nodes.look(state)
    assert state.get_node_id_by_public_key(key)
    refused = [node for node in nodes.seen(state) if node["status"] == "refused"]
    assert [node["name"] for node in refused] == ["south"] and "OpenSSH" in refused[0]["why"]


def fab(content=b"zip", declared="x"):
    return SimpleNamespace(content=content, hash_str=declared, verifications={})


def test_a_node_refuses_a_bundle_and_counts_it(caplog):
    counts = NodeCounts()
    settings = NodeSettings(role="node", name="north", superlink="x:1")
    assert not judge_bundles(settings, counts)(fab(), {})
    assert counts.refused == 1 and "refused a run's bundle" in caplog.text


@pytest.mark.law("deployment: nodes run the code they agreed to")
def test_a_node_with_other_code_takes_no_new_run(tmp_path, caplog):
    import hashlib

    from flwr.cli.build import build_fab_from_disk

    from fedlens.server.config.tree import Config
    from fedlens.simulations.transports.flower_app import write_app

    content = build_fab_from_disk(write_app(tmp_path, Config(), {}, COMPONENTS))
    good = fab(content, hashlib.sha256(content).hexdigest())
    own = NodeSettings(role="node", name="north", superlink="x:1")
    other = own.model_copy(update={"code_sha256": "0" * 64})
    assert judge_bundles(own, NodeCounts())(good, {})
    assert not judge_bundles(other, NodeCounts())(good, {})
    assert "agreed to" in caplog.text


def test_a_superlink_starts_the_installed_fedlens_for_an_operator_and_nothing_else(tmp_path):
    import hashlib

    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.error import FlowerError

    from fedlens.deploy.bundles import refuse_code
    from fedlens.server.config.tree import Config
    from fedlens.simulations.transports.flower_app import write_app

    content = build_fab_from_disk(write_app(tmp_path, Config(), {}, COMPONENTS))
    app = tmp_path / "fedlens-app"
    (app / "evil.py").write_text("import os")
    evil = build_fab_from_disk(app)
    started = refuse_code(lambda request, *_, **__: "started", ())

    def asked(content, spec=""):
        own = SimpleNamespace(content=content, hash_str=hashlib.sha256(content).hexdigest())
        return SimpleNamespace(fab=own, app_spec=spec)

    assert started(asked(content), None) == "started"
    for request in (asked(evil), asked(b""), asked(content, "@somebody/app")):
        with pytest.raises(FlowerError):
            started(request, None)
    trusted = refuse_code(lambda *_, **__: "started", [hashlib.sha256(evil).hexdigest()])
    assert trusted(asked(evil)) == "started"


def test_a_deployed_node_keeps_a_log_of_each_run(tmp_path, monkeypatch):
    """Of what it answered and why it did not; nothing of an error that may hold data."""
    monkeypatch.setenv("FEDLENS_RUN_LOGS", str(tmp_path / "logs"))
    set_up_logs()
    why = [NodeDataError("no data is named"), ValueError("a record")]

    def opened(context):
        raise why.pop(0)

    grid = InProcessGrid(build_client_app(opened), 1, {})
    for _ in range(2):
        grid.push_messages([Message(RecordDict(), min(grid.get_node_ids()), "query.describe")])
    (log,) = (tmp_path / "logs").iterdir()
    assert log.name == f"{grid.run.run_id:x}.log" and stat.S_IMODE(log.stat().st_mode) == 0o600
    known, unknown = log.read_text().splitlines()
    assert "cannot take part: no data is named" in known
    assert "stays on this node" in unknown and "a record" not in unknown


def test_names_that_are_written_down_twice_agree():
    import flwr

    from fedlens.client.app import RUN_LOGS
    from fedlens.client.contract import CONTRACT, PREFIX
    from fedlens.deploy import layout
    from fedlens.server.federation.names import NAMES

    assert (CONTRACT, PREFIX, flwr.__version__) == (layout.CONTRACT, layout.OWN_DATA, layout.FLOWER)
    assert (NAMES, RUN_LOGS) == (layout.NODE_NAMES, services.RUN_LOGS)


@pytest.mark.parametrize("which", ["superlink", "nodes/north"])
def test_no_process_of_a_deployment_draws_noise_from_a_seed(federation, tmp_path, which):
    """It may be started from a shell in which tests were run."""
    assert os.environ[TEST_MODE_VARIABLE] == "1" and services.TEST_MODE == TEST_MODE_VARIABLE
    folder = federation / which
    programs = services.programs_of(folder, read_folder(folder), tmp_path)
    assert programs and not any(TEST_MODE_VARIABLE in one.environment for one in programs)


def test_a_service_loads_nothing_that_nodes_compute_with():
    import subprocess
    import sys

    code = (
        "import sys, fedlens.deploy.services, fedlens.deploy.superlink, fedlens.deploy.supernode\n"
        "print({'torch', 'scipy', 'opacus'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_flowers_step_is_given_our_judgement():
    seen = {}

    def pull(**kwargs):
        seen["entities"] = kwargs["trusted_entities"]
        seen["fab"] = kwargs["get_fab"]("hash", 1)
        return 7

    settings, counts = NodeSettings(role="node", name="n", superlink="x:1"), NodeCounts()
    step = guard_pull(pull, settings, counts)
    assert step(get_fab=lambda *_: fab(), trusted_entities=None) == 7
    assert seen["entities"] and seen["fab"].verifications["valid_license"]
    assert counts.connected and counts.messages == 1


def test_the_places_of_flower_that_are_used_are_there():
    import inspect
    from importlib import import_module

    from flwr.superlink import extensions
    from flwr.superlink import main as api
    from flwr.supernode import main as node_api
    from flwr.supernode import start_client_internal as inner

    control = import_module("flwr.superlink.routers.control.router")
    source = inspect.getsource(inner._pull_and_store_message)
    assert "_verify_fab(fab, trusted_entities)" in source and 'get("valid_license"' in source
    assert "extensions.get_middleware()" in inspect.getsource(api)
    assert "control_handlers.start_run(" in inspect.getsource(
        inspect.getmodule(control.start_run) or control
    )
    assert callable(extensions.get_lifespan_contexts) and callable(node_api.create_app)


def test_metrics_and_status_say_rounds_and_epsilon_and_no_user(tmp_path):
    run = tmp_path / "first"
    run.mkdir()
    facts = {
        "status": "running", "round": 2, "rounds": 5, "dp_epsilon": 0.5, "delta": 1e-5,
        "bdp_epsilon": None, "bayesian_delta": 1e-10, "nodes_asked": 3, "nodes_answered": 1,
        "nodes_missing": 1, "refused": {"its update is longer": 1}, "output": str(run),
    }  # fmt: skip
    (run / "status.json").write_text(json.dumps(facts))
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "status.json").write_text("{")
    nodes = [{"name": 'no"rth', "status": "online"}]
    status = {"superlink": "up", "nodes": nodes, "runs": run_reports(tmp_path)}
    text = server_metrics(status)
    assert 'fedlens_nodes{state="online"} 1' in text
    assert 'fedlens_run_dp_epsilon{run="first"} 0.5' in text
    assert "bayesian" not in text  # infinite: nothing is shown for it
    assert "user" not in text + node_metrics(NodeCounts())
    lines = "\n".join(status_lines(status))
    for words in (
        "2 of 5",
        "ε = 0.5",
        "ε = infinite",
        "1 of 3 answered",
        "1 x its update is longer",
    ):
        assert words in lines


def test_a_run_whose_process_is_no_more_is_said_to_be_interrupted(tmp_path):
    import os
    import subprocess
    import sys

    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    for name, holder in (("dead", ended.pid), ("alive", os.getpid()), ("old", "no number")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text('{"status": "running", "round": 1}')
        (tmp_path / name / "lock").write_text(str(holder))
    said = {report["name"]: report for report in run_reports(tmp_path)}
    assert [said[name]["status"] for name in ("alive", "old")] == ["running", "running"]
    assert (
        said["dead"]["status"] == "interrupted" and "--name dead goes on" in said["dead"]["reason"]
    )
