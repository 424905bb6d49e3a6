"""The subjects study on people made up here: who is recognised, who is not, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from fedlens.cli import main
from fedlens.models.classifiers import ConvClassifier
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.framework.errors import StudyError
from fedlens_research.papers import STUDIES, subjects
from fedlens_research.papers.subjects import (
    GROUPS,
    deal_people,
    shaken,
    train_filter,
    train_provider,
)

PEOPLE, SIDE = 12, 16


def faces(pictures, seed):
    """Smooth random images, one a person, seen with noise."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(PEOPLE, 1, 4, 4, generator=generator)
    own = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear") * 0.6
    names = torch.arange(PEOPLE).repeat_interleave(pictures)
    noise = torch.randn(len(names), 1, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
    records = (own[names] + 0.1 * noise).clamp(-1, 1)
    return PrivateData("made-up", records, names, names, None, names, PEOPLE, PEOPLE, -1.0, 1.0)


@pytest.fixture(scope="module")
def split():
    return Split(faces(4, 1), faces(3, 2), faces(5, 3))


@pytest.fixture(scope="module")
def settings():
    quick = STUDIES["subjects"].settings(quick=True)
    return replace(
        quick,
        side=SIDE,
        consenting=6,
        seen=3,
        provider_steps=80,
        provider_width=4,
        filter="dense",
        width=48,
        identity_steps=150,
        rate=5e-3,
        steps=150,
        batch=32,
        alphas=(0.7,),
        attackers=("logistic",),
    )


def test_people_are_dealt_once_each_and_by_seed_alone(settings):
    people = deal_people(PEOPLE, settings, 0)
    assert torch.bincount(people.group).tolist() == [6, 3, 3]
    assert torch.equal(people.group, deal_people(PEOPLE, settings, 0).group)
    assert not torch.equal(people.group, deal_people(PEOPLE, settings, 1).group)


def test_the_filter_never_sees_the_unseen(settings, split, monkeypatch):
    people = deal_people(PEOPLE, settings, 0)
    met = []
    monkeypatch.setattr(
        subjects, "train_privatizer", lambda method, data, *_, **given: met.append((data, given))
    )
    provider = ConvClassifier((1, SIDE, SIDE), PEOPLE, 4)
    train_filter(settings, split, people, provider, 0.5, 0)
    data, given = met[0]
    assert not people.rows(data, "unseen").any()
    assert torch.equal(given["choice"][:, 0] == 1, people.rows(data, "seen"))


def test_private_people_are_lost_to_the_fixed_network_and_consenting_ones_are_not(
    settings, split, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(subjects, "load_private", lambda *_: split)
    monkeypatch.setattr("fedlens_research.framework.study.read_settings", lambda *_, **__: settings)
    assert main(["study", "subjects", "--quick", "--out", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert all(row[f"raw_{group}"] > 0.9 for group in GROUPS)
    assert row["fixed_consenting"] > 0.85
    assert row["fixed_seen"] < row["raw_seen"] - 0.3
    assert row["chance"] == pytest.approx(5 / PEOPLE)
    for group in GROUPS:
        assert 0 <= row[f"fresh_{group}"] <= 1
    for plot in ("subjects-recognised.png", "subjects-faces.png"):
        assert (tmp_path / plot).stat().st_size > 5000


def test_the_wanted_answer_says_nothing_of_which_private_person_it_is(settings):
    people = deal_people(PEOPLE, settings, 0)
    answer = subjects.wanted_answer(people, 0.06)
    assert float(answer.sum()) == pytest.approx(1.0)
    private = answer[people.group != GROUPS.index("consenting")]
    assert torch.allclose(private, torch.full_like(private, 0.01))


def test_mixtures_of_people_count_as_private():
    data = faces(4, 1)
    batch = data.batch(torch.arange(20), choice=torch.zeros(20, 1))
    changed = shaken(batch, 0.25, torch.Generator().manual_seed(0))
    assert changed.choice[:, 0].tolist() == [1.0] * 5 + [0.0] * 15
    still = shaken(batch, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(still.choice, batch.choice)
    assert not torch.equal(changed.records[:5], still.records[:5])
    assert torch.equal(changed.records[5:], still.records[5:])


def test_a_provider_of_another_shape_is_refused(settings, split):
    people = deal_people(PEOPLE, settings, 0)
    for provider in (ConvClassifier((1, 28, 28), PEOPLE, 4), ConvClassifier((1, SIDE, SIDE), 7, 4)):
        with pytest.raises(PrivatizerError, match="the provider's network"):
            train_filter(settings, split, people, provider, 0.5, 0)


def test_a_provider_learns_the_same_twice(settings, split):
    short = replace(settings, provider_steps=3)
    first, second = (train_provider(short, split, 5).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_settings_that_leave_nobody_are_refused(settings):
    with pytest.raises(PrivatizerError, match="leave none of the 12 people unseen"):
        deal_people(PEOPLE, replace(settings, consenting=9), 0)
    with pytest.raises(StudyError, match="choose of dense, unet"):
        replace(settings, filter="blur")
    with pytest.raises(PrivatizerError, match="at least 2 people"):
        replace(settings, seen=0)
