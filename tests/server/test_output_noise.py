"""Noise on released pixels: as much as was asked for, wherever a filter of samples is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from run_tasks import TINY

from fedlens.cli import main
from fedlens.client.users.views import FilteredUsers
from fedlens.privatizers.export import load_filter
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.generation.fitting import FilterFit
from fedlens.server.learning.pretrained_filter import check_filter
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.run_artifacts import kept_run_filter, kept_sampler

pytestmark = pytest.mark.usefixtures("a_filter_in_no_time")
SHAPE = (1, 28, 28)


@pytest.fixture
def trained(tmp_path):
    """The folder of a run that releases with so much output noise."""

    def make(output_noise_std: float, name: str = "run") -> RunDirectory:
        config = Config().updated({**TINY, "privatizer.output_noise_std": output_noise_std})
        return ran(config, tmp_path / name)

    return make


def ran(config, path):
    directory = RunDirectory.create(path, config)
    train_in_process(config, directory, directory.default_store, None)
    return directory


def noise_of(release, output_noise_std):
    """Standard deviation of what one image is released as, of pixels far from black and white."""
    code, source = torch.zeros(200, 10), torch.Generator().manual_seed(1)
    noises = torch.randn(200, 784, generator=source)
    released = release(
        torch.zeros(200, *SHAPE), torch.cat([code, noises], 1) if output_noise_std else code
    )
    middle = released.median(0).values.abs() < 0.2
    return float(released[:, middle].std(0).mean())


@pytest.mark.parametrize("output_noise_std", [0.0, 0.4])
def test_released_pixels_carry_as_much_noise_as_was_asked_for(trained, output_noise_std):
    directory = trained(output_noise_std)
    network, _ = kept_run_filter(directory.path)
    expected = pytest.approx(output_noise_std, rel=0.05, abs=1e-6)
    assert noise_of(network, output_noise_std) == expected
    assert noise_of(kept_sampler(directory).privatizer, output_noise_std) == expected
    assert main(["privatizer", "export", str(directory.path)]) == 0
    exported = load_filter(directory.path / "filter.pt2", "torch")
    one = torch.zeros(1, *SHAPE), torch.ones(1, *network.noise_shape)
    assert torch.allclose(exported(*one), network(*one), atol=1e-5)


def test_nodes_with_a_pretrained_filter_release_with_its_noise(trained, tmp_path, monkeypatch):
    directory, met, released = trained(0.4), [], FilteredUsers._released
    monkeypatch.setattr(FilteredUsers, "_released", lambda s, *a: met.append(s) or released(s, *a))
    first = directory.config()
    config = first.updated(
        {
            "privatizer.kind": "pretrained",
            "privatizer.path": str(directory.path),
            "privatizer.network": "code",
            "privatizer.width": first.privatizer.width,
            "privatizer.output_noise_std": 0.4,
        }
    )
    ran(config, tmp_path / "second")
    assert met and {users.network.output_noise_std for users in met} == {0.4}
    other = config.updated({"privatizer.output_noise_std": 0.1})
    with pytest.raises(ConfigError, match=r"output_noise_std = 0\.1 does not fit .* has 0\.4"):
        check_filter(other)


def test_noise_beyond_what_a_filter_is_fitted_with_changes_its_release_alone(trained):
    directory, found = trained(0.1), {}
    bare = replace(kept_sampler(directory), privatizer=None, sensitive_classes=1)
    for output_noise_std in (0.02, 0.1, 0.4):
        config = directory.config().updated({"privatizer.output_noise_std": output_noise_std})
        fitted = FilterFit.of(config, SHAPE, 2)
        fitted.fit(bare, lambda done, planned: None)
        assert fitted.network.output_noise_std == output_noise_std
        found[output_noise_std] = fitted.state()
    assert np.array_equal(found[0.1]["mean"], found[0.4]["mean"])
    assert np.array_equal(found[0.1]["reading"], found[0.4]["reading"])
    assert not np.array_equal(found[0.02]["mean"], found[0.1]["mean"])


@pytest.mark.parametrize("network", ["unet", "dense"])
def test_filters_that_release_none_are_given_none(network):
    given = {"kind": "pretrained", "path": "x", "network": network, "output_noise_std": 0.2}
    refused = rf"output_noise_std = 0\.2 .*'{network}' releases no such noise"
    with pytest.raises(ConfigError, match=refused):
        Config().updated({f"privatizer.{key}": value for key, value in given.items()})


def test_more_noise_than_there_is_range_is_refused():
    with pytest.raises(ConfigError, match=r"privatizer\.output_noise_std = 2\.5 .*2\.0 at most"):
        Config().updated({**TINY, "privatizer.output_noise_std": 2.5})
