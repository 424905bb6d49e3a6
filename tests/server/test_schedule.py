"""The tasks of a run: their order, what they cost, refusals, and noise scaled to a guarantee."""

from __future__ import annotations

import math

import pytest
from run_tasks import planned as with_schedule

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.server.config.mechanism import (
    denominator,
    largest_sum,
    release_deviation,
    round_event,
)
from fedlens.server.config.schedule import (
    check_affordable,
    costs,
    planned_epsilon,
    scaled,
    scheduled,
    task_at,
    total_rounds,
)
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.ledger.plan import planned

TWO = {
    "tasks.critic.rounds": 2,
    "tasks.critic.noise_multiplier": 10.0,
    "tasks.annotator.rounds": 20,
    "tasks.annotator.sampling_rate": 0.2,
    "tasks.annotator.noise_multiplier": 6.0,
}
THREE = {
    **TWO,
    "tasks.critic.kind": "wgan",
    "tasks.warmup.rounds": 1,
    "tasks.warmup.noise_multiplier": 12.0,
}


def made(settings: dict[str, object], **changes: object) -> Config:
    more = {key.replace("__", "."): value for key, value in changes.items()}
    return Config().updated(with_schedule({**settings, **more}))


def test_rounds_are_numbered_over_all_tasks_in_their_order():
    found = scheduled(made(THREE))
    assert [(t.name, t.settings.kind, t.first, t.last) for t in found] == [
        ("warmup", "frozen", 1, 1),
        ("critic", "wgan", 2, 3),
        ("annotator", "annotator", 4, 23),
    ]
    assert total_rounds(made(THREE)) == 23
    assert [task_at(made(THREE), n).name for n in (1, 2, 3, 4, 23)] == [
        "warmup", "critic", "critic", "annotator", "annotator",
    ]  # fmt: skip
    for number in (0, 24):
        with pytest.raises(ValueError, match="rounds 1 to 23"):
            task_at(made(THREE), number)


def test_each_task_has_its_own_mechanism():
    warmup, critic, annotator = (
        task.event for task in scheduled(made(THREE, tasks__critic__local_steps=3))
    )
    assert (warmup.noise_multiplier, critic.noise_multiplier) == (12.0, 10.0)
    assert (annotator.sampling_rate, annotator.sampler) == (0.2, "poisson")
    config = made(THREE, tasks__critic__local_steps=3)
    assert critic == round_event(config, config.tasks["critic"])
    record = scheduled(made(THREE, privacy__unit="record", tasks__critic__local_steps=3))
    assert [(task.event.unit, task.event.count) for task in record] == [
        ("record", 1), ("record", 3), ("record", 1),
    ]  # fmt: skip


def test_the_defaults_are_a_schedule_of_one_task():
    (only,) = scheduled(Config())
    assert (only.name, only.settings.kind, only.first, only.rounds) == ("critic", "frozen", 1, 4)
    assert only.event == round_event(Config(), Config().tasks["critic"])


def test_what_is_planned_is_what_the_ledger_will_say():
    config = made(THREE)
    account = DifferentialAccountant()
    for task in scheduled(config):
        account.compose(task.event, task.rounds)
    expected = account.epsilon(config.privacy.delta).epsilon
    assert planned(config).dp_epsilon == pytest.approx(expected, rel=1e-12)
    assert planned(config).rounds == 23
    assert planned_epsilon(config, config.privacy.delta) == pytest.approx(expected, rel=1e-12)


def test_a_budget_ends_the_plan_where_it_will_end_the_run():
    whole = planned(made({"tasks.critic.rounds": 40}))
    cut = planned(made({"tasks.critic.rounds": 40}, privacy__epsilon_budget=0.5 * whole.dp_epsilon))
    assert 0 < cut.rounds < 40 and cut.dp_epsilon <= 0.5 * whole.dp_epsilon


def test_shares_add_up_to_one_and_follow_the_noise():
    found = costs(made(THREE))
    assert [name for name, _, _ in found] == ["warmup", "critic", "annotator"]
    assert sum(share for _, _, share in found) == pytest.approx(1.0)
    louder = {
        name: share for name, _, share in costs(made(THREE, tasks__annotator__noise_multiplier=12))
    }
    assert louder["annotator"] < {name: share for name, _, share in found}["annotator"]
    whole = planned_epsilon(made(THREE), 1e-5)
    assert all(0 < epsilon < whole for _, epsilon, _ in found)
    (open_task,) = [
        c for c in costs(made(TWO, tasks__annotator__noise_multiplier=0.0)) if c[2] == 1.0
    ]
    assert open_task[:2] == ("annotator", float("inf"))


def test_a_schedule_above_its_budget_is_refused_naming_the_task_and_all_costs():
    need = planned_epsilon(made(THREE), 1e-5)
    first_two = planned_epsilon(made(THREE), 1e-5, "warmup", "critic")
    check_affordable(made(THREE))
    check_affordable(made(THREE, privacy__epsilon_budget=need))
    for budget, task in (
        (need * 0.999, "annotator"),
        (first_two * 0.99, "critic"),
        (0.1, "warmup"),
    ):
        with pytest.raises(ConfigError) as refusal:
            check_affordable(made(THREE, privacy__epsilon_budget=budget))
        message = str(refusal.value)
        assert f"in its task '{task}'" in message and "privacy.epsilon_budget" in message
        assert all(f"{name} " in message for name in ("warmup", "critic", "annotator"))


def test_without_noise_any_budget_is_too_small_and_one_task_alone_is_left_to_stop():
    with pytest.raises(ConfigError, match="infinite"):
        check_affordable(
            made(TWO, tasks__annotator__noise_multiplier=0.0, privacy__epsilon_budget=5.0)
        )
    check_affordable(Config().updated({"privacy.epsilon_budget": 1e-3}))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-10), (1.0, 1e-5), (10.0, 1e-5), (0.05, 1e-6)]
)
@pytest.mark.parametrize("settings", [TWO, THREE], ids=["two tasks", "three tasks"])
def test_scaled_noise_meets_the_guarantee_closely_and_keeps_its_proportions(
    settings, epsilon, delta
):
    before = made(settings)
    after = scaled(before, epsilon=epsilon, delta=delta)
    assert epsilon * 0.999 <= planned_epsilon(after, delta) <= epsilon
    ratios = [
        new.event.noise_multiplier / old.event.noise_multiplier
        for old, new in zip(scheduled(before), scheduled(after), strict=True)
    ]
    assert max(ratios) / min(ratios) == pytest.approx(1.0, rel=1e-5)
    untouched = {k: v for k, v in after.flat().items() if not k.endswith("noise_multiplier")}
    assert untouched.items() <= before.flat().items()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon = 0.0"),
        ({"epsilon": float("inf"), "delta": 1e-5}, "epsilon = inf"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta = 1.0"),
    ],
)
def test_a_guarantee_that_is_none_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        scaled(made(TWO), **wrong)


def test_noise_of_zero_cannot_be_scaled():
    with pytest.raises(ConfigError, match="'annotator' has noise multiplier 0"):
        scaled(made(TWO, tasks__annotator__noise_multiplier=0.0), epsilon=1.0, delta=1e-5)


def test_in_record_mode_every_task_is_divided_by_the_same_declared_silo():
    config = made(
        THREE,
        privacy__unit="record",
        tasks__critic__sampling_rate=0.1,
        data__records_per_node=3000,
    )
    found = {task.name: denominator(config, task.settings) for task in scheduled(config)}
    assert found == {"warmup": 3000.0, "critic": 300.0, "annotator": pytest.approx(600.0)}
    config = made(THREE)
    users = {task.name: denominator(config, task.settings) for task in scheduled(config)}
    assert users == {"warmup": 1000.0, "critic": 1000.0, "annotator": 200.0}


def test_a_releases_noise_is_averaged_over_the_nodes_of_record_mode():
    user = made(TWO)
    update = 10 / math.sqrt(1 - user.privacy.norms_share)
    assert release_deviation(user, user.tasks["critic"]) == pytest.approx(update * 0.3 / 1000)
    record = made(TWO, privacy__unit="record", data__records_per_node=500, data__nodes=4)
    assert release_deviation(record, record.tasks["critic"]) == pytest.approx(10 * 0.3 / 500 / 2)


def test_the_bound_of_a_noised_sum_is_finite_and_leaves_room_for_the_noise():
    config = made(TWO, privacy__unit="record", data__records_per_node=500)
    size = 2010
    bound = largest_sum(config, config.annotator, size)
    noise = 6.0 * 1.0 * size**0.5 / denominator(config, config.annotator)
    assert noise + 1.0 < bound < 3 * noise + 10
