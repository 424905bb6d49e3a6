"""The owners' contract: what it may say, and that a node keeps the stricter of it and its floor."""

from __future__ import annotations

import json

import layouts
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlens.client.contract import (
    ContractError,
    FederationContract,
    parse_contract,
    read_contract,
)
from fedlens.client.node.policy import NodePolicy, RequestRefused
from fedlens.client.preparing.intake import Preparation
from fedlens.client.preparing.prepare import prepare
from fedlens.client.users.protocol import NodeDataError
from fedlens.data.formats.formats import open_source

TEXT = """
name = "ward-7"
classes = ["naevus", "melanoma"]
tasks = ["frozen", "annotator"]
records_per_user = 8
least_noise_multiplier = 2.0
largest_sampling_rate = 0.5
[image]
side = 64
colour = true
[sensitive]
attribute = "sex"
values = ["f", "m"]
[declared]
site = ["a", "b"]
"""


def test_a_contract_is_read_and_written_back_equal():
    contract = parse_contract(TEXT, "f")
    assert contract.shape == (3, 64, 64)
    assert parse_contract(contract.to_toml(), "g") == contract
    moved = parse_contract("# a comment\n" + TEXT.replace("tasks =", "tasks  ="), "f")
    assert moved.digest() == contract.digest()
    assert parse_contract(TEXT.replace("naevus", "nevus"), "f").digest() != contract.digest()


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_name_survives_writing_or_is_refused(name):
    try:
        contract = FederationContract(name="w", classes=(name,))
    except ValueError:
        return
    assert parse_contract(contract.to_toml(), "f") == contract


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "ward-7"', 'name = "ward 7"', "name = 'ward 7'"),
        ('name = "ward-7"', "", "lacks name"),
        ("side = 64", "side = 30", "image.side = 30 cannot be used: give a multiple of 4"),
        ("side = 64", 'side = "64"', "image.side = '64'"),
        ('"melanoma"', '"naevus"', "'naevus' is there twice"),
        ('"melanoma"', '" melanoma"', "no blanks around them"),
        ('classes = ["naevus", "melanoma"]', "classes = []", "classes"),
        ("records_per_user = 8", "records_per_user = -1", "records_per_user = -1"),
        ("records_per_user = 8", "records_per_usr = 8", "records_per_usr is no key of a contract"),
        ("largest_sampling_rate = 0.5", "largest_sampling_rate = 0.0", "largest_sampling_rate"),
        ("least_noise_multiplier = 2.0", "least_noise_multiplier = nan", "least_noise_multiplier"),
        ("[image]", "[image", "is not TOML"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(old, new, said):
    with pytest.raises(ContractError) as raised:
        parse_contract(TEXT.replace(old, new), "federation.toml")
    assert said in str(raised.value) and str(raised.value).startswith("federation.toml: ")
    assert "\n" not in str(raised.value).split("is not TOML")[0]


def test_a_file_that_is_none_is_one_line(tmp_path):
    with pytest.raises(ContractError, match="name the federation"):
        read_contract(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ContractError, match="no text in UTF-8"):
        read_contract(tmp_path / "binary")
    (tmp_path / "deep").write_text("a = " + "[" * 5000)
    with pytest.raises(ContractError, match="is not TOML"):
        read_contract(tmp_path / "deep")
    (tmp_path / "large").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ContractError, match="over 1 MiB"):
        read_contract(tmp_path / "large")


@pytest.fixture
def node(tmp_path):
    """A prepared store's node configuration."""
    layouts.medmnist(tmp_path / "m.npz")
    text = TEXT.replace('["naevus", "melanoma"]', '["0", "1", "2"]')
    text = text[: text.index("[sensitive]")]
    agreed = parse_contract(text, "f")
    source = open_source(tmp_path / "m.npz", owner="each")
    prepare(source, Preparation(agreed, b"k" * 32), tmp_path / "store")
    (tmp_path / "federation.toml").write_text(text)
    return {"data": str(tmp_path / "store")}


def test_a_node_refuses_what_its_stores_contract_does_not_allow(node, make_request):
    policy = NodePolicy.of(node)
    usual = {"kind": "frozen", "noise_multiplier": 2.0, "sampling_rate": 0.5}
    assert policy.accept(make_request(0, **usual, records_per_user=100)).records_per_user == 8
    assert policy.accept(make_request(0, **usual, records_per_user=5)).records_per_user == 5
    for changed in ({"kind": "focused"}, {"noise_multiplier": 1.9}, {"sampling_rate": 0.6}):
        with pytest.raises(RequestRefused):
            policy.accept(make_request(0, **{**usual, **changed}))
    with pytest.raises(RequestRefused):
        policy.accept(make_request(0, **usual, unit="record"))


@pytest.mark.law("1: a node refuses what is below its floor")
def test_the_stricter_of_floor_and_contract_holds(node):
    own = {"least-noise-multiplier": 3.0, "largest-sampling-rate": 0.9, "records-per-user": 4}
    policy = NodePolicy.of({**node, **own, "kinds": "annotator wgan"})
    assert policy.least_noise_multiplier == 3.0
    assert policy.largest_sampling_rate == 0.5
    assert policy.records_per_user == 4
    assert policy.kinds == "annotator"
    with pytest.raises(NodeDataError, match="allows frozen annotator alone"):
        NodePolicy.of({**node, "kinds": "wgan"})
    with pytest.raises(NodeDataError, match="contract is for users"):
        NodePolicy.of({**node, "units": "record"})


def test_a_nodes_contract_is_its_stores(node, tmp_path):
    assert NodePolicy.of({**node, "federation": str(tmp_path / "federation.toml")})
    other = (tmp_path / "federation.toml").read_text().replace("ward-7", "ward-8")
    (tmp_path / "other.toml").write_text(other)
    with pytest.raises(NodeDataError, match="another contract than the store's own"):
        NodePolicy.of({**node, "federation": str(tmp_path / "other.toml")})


def test_a_contract_for_records_needs_noise_of_the_nodes(tmp_path):
    text = 'name = "w"\nclasses = ["a"]\nunit = "record"\n'
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(NodeDataError, match="least-noise-multiplier above 0"):
        NodePolicy.of({"data": "/abs/x.npz", "federation": str(tmp_path / "f.toml")})
    (tmp_path / "f.toml").write_text(text + "least_noise_multiplier = 1.0\n")
    policy = NodePolicy.of({"data": "/abs/x.npz", "federation": str(tmp_path / "f.toml")})
    assert policy.units == "record"


def test_digests_are_of_what_is_agreed_alone():
    told = json.loads(FederationContract(name="w", classes=("a",)).model_dump_json())
    assert FederationContract(**{**told, "classes": ("a",)}).digest() == (
        FederationContract(name="w", classes=("a",)).digest()
    )
