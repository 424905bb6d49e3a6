"""Attackers find what is there, and nothing where nothing is; scores are as computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedlens.foundation.errors import WrongUse
from fedlens.privatizers.attacks.attackers import ATTACKERS, FRESH, AttackError
from fedlens.privatizers.attacks.attackers.formula import FormulaAttacker
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker
from fedlens.privatizers.attacks.attackers.references import LogisticAttacker, SideAttacker
from fedlens.privatizers.attacks.attackers.vectors import VectorReader
from fedlens.privatizers.attacks.scores import attack, score
from fedlens.privatizers.private_data import PrivateData


def private(
    records: Tensor, sensitive: Tensor, *, side: Tensor | None = None, owners: Tensor | None = None
) -> PrivateData:
    return PrivateData(
        name="made up",
        records=records,
        utility=torch.zeros_like(sensitive),
        sensitive=sensitive,
        side=side,
        owners=owners,
        utility_classes=1,
        sensitive_classes=2,
        low=-9.0,
        high=9.0,
    )


def points(n: int, seed: int, *, apart: float) -> PrivateData:
    """Two Gaussian clouds of unit variance whose means are ``apart`` from each other."""
    generator = torch.Generator().manual_seed(seed)
    sensitive = torch.randint(0, 2, (n,), generator=generator)
    records = torch.randn(n, 2, generator=generator)
    records[:, 0] += apart * (sensitive - 0.5)
    return private(records, sensitive)


def ring(n: int, seed: int) -> PrivateData:
    """Secret 1 lies outside the median radius: nothing linear tells them apart."""
    generator = torch.Generator().manual_seed(seed)
    records = torch.randn(n, 2, generator=generator)
    return private(records, (records.square().sum(1) > 2 * math.log(2)).long())


@pytest.mark.parametrize("name", FRESH)
def test_an_attacker_reaches_the_best_there_is_on_two_clouds(name: str) -> None:
    apart = 2.0
    found = attack(ATTACKERS[name](), points(4000, 1, apart=apart), points(4000, 2, apart=apart), 0)
    best = 0.5 * (1 + math.erf(apart / 2 / math.sqrt(2)))  # Phi(apart / 2)
    assert best - 0.03 < found.balanced_accuracy < best + 0.02
    low, high = found.leak_interval
    assert low < found.leak_lower_bound < high
    assert 0.25 < found.leak_lower_bound < 0.4  # I(S; Q) is 0.337 nats by quadrature


@pytest.mark.parametrize("name", [name for name in ATTACKERS if name != "decode"])
def test_no_attacker_claims_a_leak_where_there_is_none(name: str) -> None:
    attacker = ATTACKERS[name]()
    if isinstance(attacker, VectorReader):  # many epochs still: 3,000 points are few
        attacker = replace(attacker, steps=300, tree_rounds=50)
    found = attack(attacker, points(3000, 3, apart=0.0), points(3000, 4, apart=0.0), 0)
    assert abs(found.balanced_accuracy - 0.5) < 0.04
    assert found.leak_interval[0] < 0.005


def test_what_no_line_separates_is_found_by_networks_and_trees_alone() -> None:
    train, test = ring(3000, 1), ring(2000, 2)
    accuracy = {name: attack(ATTACKERS[name](), train, test, 0).accuracy for name in FRESH}
    assert accuracy["logistic"] < 0.6
    assert min(accuracy[name] for name in ("trees", "same", "wide")) > 0.93


def test_equal_seeds_give_equal_attackers_and_the_global_generator_stays() -> None:
    data = points(500, 1, apart=1.0)
    before = torch.get_rng_state()
    for name in FRESH:
        one, two = (
            ATTACKERS[name]().fit(data, 7).log_probabilities(data.records) for _ in range(2)
        )
        assert torch.equal(one, two)
    assert torch.equal(before, torch.get_rng_state())


def series(n: int, seed: int) -> PrivateData:
    """The secret of a step is whether the step before was high; evenings are mostly 1."""
    generator = torch.Generator().manual_seed(seed)
    records = torch.randn(n, 12, 1, generator=generator)
    sensitive = (records.roll(1, 1)[..., 0] > 0).long()
    sensitive[:, 0] = 0
    late = torch.rand(n, 4, generator=generator) < 0.9
    sensitive[:, 8:] = late.long()
    side = torch.randn(n, 12, 1, generator=generator)
    return private(records, sensitive, side=side)


def test_series_are_attacked_step_by_step() -> None:
    train, test = series(800, 1), series(500, 2)
    guesses = ATTACKERS["trees"]().fit(replace(train, side=None), 0)
    found = guesses.log_probabilities(test.records)
    assert found.shape == (500, 12, 2)
    assert torch.allclose(found.exp().sum(-1), torch.ones(500, 12, dtype=torch.float64))
    right = (found.argmax(-1) == test.sensitive).double().mean(0)
    assert float(right[1:8].min()) > 0.9


def test_which_step_it_is_says_something_that_the_prior_does_not() -> None:
    train, test = series(800, 1), series(500, 2)
    leaks = {
        name: attack(ATTACKERS[name](), train, test, 0).leak_lower_bound
        for name in ("prior", "side-information", "position")
    }
    assert abs(leaks["prior"]) < 0.01
    assert leaks["side-information"] < 0.01
    assert leaks["position"] > 0.1


def test_side_information_is_used_alone_and_beside_the_record() -> None:
    generator = torch.Generator().manual_seed(0)
    side = torch.randint(0, 7, (3000, 1), generator=generator).float()
    data = private(
        torch.randn(3000, 1, 8, 8, generator=generator), ((side[:, 0] % 2) == 1).long(), side=side
    )
    train, test = data.take(slice(0, 2000)), data.take(slice(2000, 3000))
    assert attack(SideAttacker(), train, test, 0).accuracy > 0.99  # a linear guess has 4 / 7
    assert attack(NetworkAttacker(steps=800), train, test, 0).accuracy > 0.7
    assert attack(ATTACKERS["trees"](), train, test, 0).accuracy > 0.99


def test_a_formula_needs_only_to_learn_what_its_answers_mean() -> None:
    data = points(2000, 1, apart=4.0)

    def turned(records: Tensor, _: Tensor | None) -> Tensor:
        """Answers 2 where it cannot say, and calls the classes by each other's names."""
        return torch.where(records[:, 0].abs() < 0.3, 2, (records[:, 0] < 0).long())

    def useless(records: Tensor, _: Tensor | None) -> Tensor:
        return (records[:, 1] > 0).long()

    found = attack(FormulaAttacker((useless, turned)), data, points(2000, 2, apart=4.0), 0)
    assert found.balanced_accuracy > 0.95
    alone = attack(FormulaAttacker((useless,)), data, points(2000, 2, apart=4.0), 0)
    assert abs(alone.balanced_accuracy - 0.5) < 0.04


def test_an_answer_that_was_never_seen_says_what_the_prior_does() -> None:
    data = points(400, 1, apart=4.0)

    def side_of_line(records: Tensor, _: Tensor | None) -> Tensor:
        return torch.where(records[:, 1] > 100, 5, (records[:, 0] > 0).long())

    fitted = FormulaAttacker((side_of_line,)).fit(data, 0)
    never = fitted.log_probabilities(torch.tensor([[3.0, 200.0]])).exp()
    assert float(never[0, 1]) == pytest.approx(float(data.sensitive.double().mean()), abs=1e-3)


def test_a_score_is_what_is_computed_by_hand() -> None:
    guesses = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]).log()
    found = score(guesses, torch.tensor([0, 0, 1, 1]))
    assert found.accuracy == 0.75
    assert found.balanced_accuracy == pytest.approx(0.75)
    loss = -(math.log(0.9) + math.log(0.8) + math.log(0.4) + math.log(0.7)) / 4
    assert found.cross_entropy == pytest.approx(loss, rel=1e-6)
    assert found.leak_lower_bound == pytest.approx(math.log(2) - loss, rel=1e-6)


def test_balanced_accuracy_is_the_mean_over_classes_present() -> None:
    guesses = torch.tensor([[0.8, 0.1, 0.1]]).log().expand(10, -1)
    found = score(guesses, torch.tensor([0] * 9 + [1]))
    assert found.accuracy == 0.9
    assert found.balanced_accuracy == 0.5


def test_records_of_one_owner_are_drawn_together() -> None:
    """Ten people with a hundred equal records each: a record is no independent witness."""
    generator = torch.Generator().manual_seed(0)
    sensitive = torch.randint(0, 2, (10,), generator=generator).repeat_interleave(100)
    sure = torch.rand(10, 1, generator=generator).repeat_interleave(100, 0) * 0.5 + 0.4
    guesses = torch.where(torch.nn.functional.one_hot(sensitive, 2).bool(), sure, 1 - sure).log()
    owners = torch.arange(10).repeat_interleave(100)
    alone, together = score(guesses, sensitive), score(guesses, sensitive, owners=owners)
    wide = [found.leak_interval[1] - found.leak_interval[0] for found in (alone, together)]
    assert wide[1] > 5 * wide[0]


@pytest.mark.parametrize(
    ("guesses", "sensitive", "says"),
    [
        (torch.zeros(3, 2), torch.tensor([0, 1, 0]), "no log-probabilities"),
        (torch.full((2, 2), 0.5).log(), torch.tensor([0, 1, 0]), "give a row of"),
        (torch.full((3, 2), 0.5).log(), torch.tensor([0, 2, 0]), "run from 0 to 2"),
        (torch.full((3, 2), 0.5).log(), torch.tensor([1, 1, 1]), "at least two classes"),
    ],
)
def test_guesses_that_mean_nothing_are_refused(
    guesses: Tensor, sensitive: Tensor, says: str
) -> None:
    with pytest.raises(AttackError, match=says):
        score(guesses, sensitive)


def test_records_that_nothing_can_be_learned_of_are_refused() -> None:
    data = points(50, 1, apart=1.0)
    fit = LogisticAttacker().fit
    with pytest.raises(AttackError, match="two classes"):
        fit(replace(data, sensitive=torch.ones(50, dtype=torch.int64)), 0)
    with pytest.raises(AttackError, match="steps"):
        fit(replace(data, sensitive=data.sensitive[:, None].expand(-1, 2)), 0)
    with pytest.raises(WrongUse, match=r"no attacker 'psychic': choose one of prior, .*wide"):
        ATTACKERS["psychic"]
    with pytest.raises(AttackError, match="rules is empty"):
        FormulaAttacker(())
