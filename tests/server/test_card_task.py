"""A data card through real nodes and the real ledger: what is released, spent and refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.diagnosis.cards.estimates import card_of
from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.statistics import card_layout
from fedlens.models.cards.vectors import card_vector
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.round.releases import load_releases
from fedlens.simulations.federation.apps import node_users

CARD = {
    "schedule": "card",
    "data.users": 40,
    "data.nodes": 2,
    "data.samples_per_user": 5,
    "data.records_per_user": 5,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "tasks.card.kind": "card",
    "tasks.card.noise_multiplier": 1e-6,
    "generator.width": 8,
}


def config_of(**changes):
    return Config().updated({**CARD, **{k.replace("__", "."): v for k, v in changes.items()}})


def users_of(config):
    for node in range(config.data.nodes):
        held = node_users(config, node)
        yield from (held.user(place) for place in range(len(held)))


def truth(config):
    rows = []
    for data in users_of(config):
        layout = card_layout((1, 28, 28), 1 if config.data.unlabelled else 10)
        there = torch.ones(len(data.labels), dtype=torch.bool)
        rows.append(card_vector(data.images, data.labels, there, layout))
    return torch.stack(rows).double().mean(0).numpy(), layout


@pytest.mark.parametrize("labels", ["own", "none"])
def test_the_release_is_the_mean_of_users_histograms(run_small, tmp_path, labels):
    config = config_of(data__labels=labels)
    run_small(config)
    (kept,) = load_releases(tmp_path / "run")
    mean, layout = truth(config)
    assert layout.size == len(kept.release) and layout.classes == (10 if labels == "own" else 1)
    np.testing.assert_allclose(kept.release, mean, atol=1e-4)
    (entry,) = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert entry.purpose == "training round" and entry.event.released.startswith("data card")
    assert (entry.event.clipping_norm, entry.event.sampling_rate) == (2.52, 1.0)


def test_without_noise_shares_are_those_of_the_records(run_small, tmp_path):
    config = config_of()
    run_small(config)
    card = card_of(load_releases(tmp_path / "run"))
    held = torch.stack([torch.bincount(one.labels, minlength=10) for one in users_of(config)])
    # users whose pictures are alike count for less, so shares are near the records', not equal
    np.testing.assert_allclose(card["classes"].shares, held.sum(0).numpy() / 200, atol=0.02)
    several = (held > 0).sum(1).double()
    found = card["user_classes"]
    counted, _ = np.histogram(several, found.statistic.edges)
    np.testing.assert_allclose(found.shares, counted / 40, atol=1e-3)
    assert card["records"].shares[3] == pytest.approx(1, abs=1e-3)  # 5 to 8
    closed = [one for one in card.histograms if one.statistic.closed]
    assert len(closed) == 14 and all(one.shares.sum() == pytest.approx(1) for one in closed)


def test_several_rounds_are_averaged(run_small, tmp_path):
    run_small(config_of(tasks__card__rounds=2, tasks__card__noise_multiplier=0.1))
    card = card_of(load_releases(tmp_path / "run"))
    one = load_releases(tmp_path / "run")[0].deviation
    assert card.deviation == pytest.approx(one / np.sqrt(2))


def test_a_card_beside_other_tasks_leaves_their_samples(run_small, tmp_path, small_config):
    more = {"schedule": "critic card", "tasks.card.kind": "card", "tasks.critic.rounds": 1}
    outcome = run_small(small_config(**more))
    assert outcome.rounds == 2 and len(load_releases(tmp_path / "run")) == 2


def test_what_a_card_cannot_be_asked_with_is_refused_and_costs_nothing(run_small, tmp_path):
    record = {"privacy__unit": "record", "privacy__delta": 1e-5, "data__records_per_node": 100}
    with pytest.raises(ConfigError, match=r"tasks\.card: a card is of users"):
        run_small(config_of(**record))
    with pytest.raises(ConfigError, match=r"sampling_rate = 0\.5 cannot be used"):
        run_small(config_of(tasks__card__sampling_rate=0.5), "drawn")
    with pytest.raises(ConfigError, match="not of all"):
        config_of(aggregation__trimmed_share=0.1, data__nodes=10)
    with pytest.raises(ConfigError, match=r"tasks\.card\.expect"):
        config_of(tasks__card__expect="sharks < 1%")
    with pytest.raises(ConfigError, match=r"tasks\.card\.clipping_norm = 1\.0 .* would be cut"):
        run_small(config_of(tasks__card__clipping_norm=1.0), "cut")
    with pytest.raises(ConfigError, match=r"tasks\.card\.expect: .*'red' is not in this card"):
        run_small(config_of(tasks__card__expect="red < 0.1"), "grey")
    assert not (tmp_path / "grey" / "ledger.jsonl").exists()


def test_a_run_without_a_card_and_one_that_noise_drowns_say_so(run_small, tmp_path, small_config):
    run_small(small_config(tasks__critic__rounds=1), "none")
    with pytest.raises(WrongUse, match="no release of a task of kind 'card'"):
        card_of(load_releases(tmp_path / "none"))
    run_small(config_of(tasks__card__noise_multiplier=50.0), "drowned")
    with pytest.raises(WrongUse, match="the card says nothing"):
        card_of(load_releases(tmp_path / "drowned"))
