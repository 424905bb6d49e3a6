"""What Ray is told that a node takes of a machine."""

from __future__ import annotations

import pytest

from fedlens.simulations.transports.ray import NODE_CPUS, NODE_GPUS, TransportError, resources


def told(nodes, environment):
    return dict(pair.split("=") for pair in resources(nodes, environment).split())


def test_a_node_takes_a_core_and_no_gpu_unless_it_is_said_otherwise():
    usual = told(5, {})
    assert usual["num-supernodes"] == "5" and usual["client-resources-num-cpus"] == "1"
    assert float(usual["client-resources-num-gpus"]) == 0
    more = told(5, {NODE_CPUS: "2", NODE_GPUS: "0.25"})
    assert more["client-resources-num-cpus"] == "2"
    assert more["client-resources-num-gpus"] == "0.25"


@pytest.mark.parametrize(("name", "text"), [(NODE_CPUS, "0"), (NODE_GPUS, "-1"), (NODE_GPUS, "x")])
def test_what_is_no_amount_is_refused(name, text):
    with pytest.raises(TransportError, match=f"{name}='{text}'"):
        resources(2, {name: text})
