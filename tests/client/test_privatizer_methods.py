"""Methods by name: each says what a federation needs, and another package's is found like ours."""

from __future__ import annotations

import pytest
import torch

from fedlens.privatizers.federated import AlphaMethod
from fedlens.privatizers.methods import METHODS, method_of
from fedlens.privatizers.networks.design import design
from fedlens.privatizers.protocol import FILTER, PrivatizerError, named_weights

SETTINGS = {
    "network": "dense",
    "width": 4,
    "adversary_width": 4,
    "consenting": 0.0,
    "filter_share": 0.5,
    "alpha": 0.5,
    "weight": 1.0,
}
SHAPE = (1, 8, 8)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_builds_steps_over_the_networks_that_it_asks_for(name):
    settings = {**SETTINGS, "method": name}
    planned = design(settings, SHAPE, 5, 3)
    asked = method_of(settings).classifiers(5, 3)
    assert list(planned.networks) == [FILTER, *asked]
    for network, answers in asked.items():
        assert planned.networks[network](torch.zeros(2, *SHAPE)).shape == (2, answers)
    built = method_of(settings).build(planned.networks, settings, torch.tensor([0.0, 0.4, 0.6]))
    assert named_weights(built.networks).keys() == planned.networks.keys()


def test_a_method_of_another_package_is_planned_like_ours():
    class Larger(AlphaMethod):
        def classifiers(self, classes, sensitive_classes):
            return {"utility": classes, "adversary": sensitive_classes, "third": 7}

    with METHODS.replaced("alpha", Larger()):
        planned = design({**SETTINGS, "method": "alpha"}, SHAPE, 5, 3)
    assert "third" in planned.networks
    assert sum(block.bound**2 for block in planned.blocks) == pytest.approx(1)


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(PrivatizerError, match=r"no privatizer 'alhpa'.* did you mean 'alpha'"):
        method_of({"method": "alhpa"})
