"""Nodes come late, leave, return and grow; users are revoked; a run says whom it speaks for."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

import fedlens.client.app
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationError, PopulationTerms
from fedlens.cli import main
from fedlens.client.app import build_client_app
from fedlens.client.messages import DESCRIBE, TRAIN, Description
from fedlens.client.node.members import members_of
from fedlens.client.secure_messages import MASKED as MASKED_TRAIN
from fedlens.client.users.protocol import DataOrigin
from fedlens.server.config.schedule import scheduled
from fedlens.server.federation import membership
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.federation.enrolment import enrol
from fedlens.server.federation.membership import QuorumMissing
from fedlens.server.federation.roster import share_places
from fedlens.server.ledger.plan import ENROLLED
from fedlens.server.ledger.population import population_folder, registry_url
from fedlens.server.ledger.run_ledger import account_of
from fedlens.server.round.step import PrivateStep, StepPlan
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.federation.apps import node_users
from fedlens.simulations.transports.inprocess import FIRST_NODE_ID, InProcessGrid
from fedlens.store import StoreError, open_store

NODES = 3


class Town(InProcessGrid):
    """Nodes of which some are away in some rounds, and whose users change in others.

    ``away`` and ``moved`` are told the round that is about to come.
    """

    def __init__(
        self, config, away=lambda number: set(), moved=lambda number, users: users, **node
    ):
        self.config, self.away, self.moved = config, away, moved
        self.round, self.asked = 0, []
        super().__init__(
            build_client_app(self._open), config.data.nodes, config.flat(), node_config=node
        )

    def _open(self, context):
        users = node_users(self.config, int(context.node_config["partition-id"]))
        return self.moved(max(self.round, 1), users)

    def get_node_ids(self):
        away = self.away(self.round + 1)
        return [i for i in super().get_node_ids() if i - FIRST_NODE_ID not in away]

    def push_messages(self, messages):
        messages = list(messages)
        if messages and messages[0].metadata.message_type in (TRAIN, MASKED_TRAIN):
            self.round = int(messages[0].metadata.group_id)
            self.asked.append({m.metadata.dst_node_id - FIRST_NODE_ID for m in messages})
        return super().push_messages(messages)


@pytest.fixture
def config(small_config):
    def make(**changes):
        return small_config(
            **{
                "data__nodes": NODES,
                "data__users": 39,
                "tasks__critic__rounds": 4,
                "tasks__critic__generator_steps": 1,
                "membership__patience": 0.0,
                "membership__least_users": 0.6,
                **changes,
            }
        )

    return make


@pytest.fixture
def run_town(tmp_path, monkeypatch):
    monkeypatch.setattr(membership, "PAUSE", 0.01)
    monkeypatch.setattr(membership, "FIRST_RETRY", 0.0)
    monkeypatch.setattr(membership, "ASKED_EVERY", 1)

    def run(config, town, name="run"):
        path = tmp_path / name
        known = RunDirectory(path)
        directory = known if known.exists() else RunDirectory.create(path, config)
        return train(config, directory, town)

    return run


def test_a_run_says_for_whom_it_waits_by_their_names(config, run_town, tmp_path, monkeypatch):
    """In its log, in its status, and where it gives up."""
    home = tmp_path / "superlink"
    home.mkdir()
    monkeypatch.setenv("FEDLENS_HOME", str(home))
    names = {FIRST_NODE_ID + number: f"node-{number + 1}" for number in range(NODES)}
    (home / "node-names.json").write_text(json.dumps(names))
    status, said = tmp_path / "run" / "status.json", []

    def away(number):
        if number != 3 or len(said) > 2:
            return set()
        said.append(json.loads(status.read_text()))
        return {1}

    few = config(membership__least_users=0.9, membership__patience=60.0)
    assert run_town(few, Town(few, away)).rounds == 4
    assert said[0]["status"] == "running"
    assert said[-1]["status"] == "waiting" and "(node-2 is offline)" in said[-1]["reason"]
    last = json.loads(status.read_text())
    assert (last["status"], last["reason"]) == ("finished", None)
    few = few.updated({"membership.patience": 0.0})
    with pytest.raises(QuorumMissing, match=r"start the others.*\(node-2 is offline\)"):
        run_town(few, Town(few, lambda number: {1} if number == 3 else set()), "other")


def test_a_node_that_fails_while_it_is_online_is_named(config, tmp_path, monkeypatch):
    """And nobody is told to start what runs."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path))
    (tmp_path / "node-names.json").write_text(json.dumps({FIRST_NODE_ID + 1: "node-2"}))

    def broken(number, users):
        if users.partition == 1:
            raise ValueError("a record")
        return users

    whole = config(membership__least_users=1.0)
    with pytest.raises(EnrolmentError) as raised:
        enrol(Town(whole, moved=broken), whole)
    assert "node-2 failed or silent though online" in str(raised.value)
    assert "start the" not in str(raised.value) and "a record" not in str(raised.value)


def presence_of(outcome):
    with open_store(outcome.store) as store:
        return store.presence(outcome.run_id)


def fewer(users, count):
    return replace(users, offsets=users.offsets[: count + 1], ids=users.ids[:count])


# Coming and going


def test_a_node_that_comes_late_leaves_and_returns_takes_part_when_it_is_there(config, run_town):
    away = {1: {2}, 3: {2}}
    town = Town(config(), lambda number: away.get(number, set()))
    outcome = run_town(town.config, town)
    assert town.asked == [{0, 1}, {0, 1, 2}, {0, 1}, {0, 1, 2}]
    covered = presence_of(outcome)
    assert [row.answered for row in covered.rows] == [[0, 1], [0, 1, 2], [0, 1], [0, 1, 2]]
    assert [row.users for row in covered.rows] == [26, 39, 26, 39]
    assert not covered.whole and not outcome.whole
    assert "2 of 4 rounds had fewer" in outcome.covered and "(rounds 1, 3)" in outcome.covered


@pytest.mark.law("1: a run says whom it speaks for")
def test_a_run_that_finished_without_some_users_says_so_wherever_it_is_described(
    config, run_town, caplog
):
    town = Town(config(), lambda number: {2} if number > 2 else set())
    with caplog.at_level(logging.WARNING):
        outcome = run_town(town.config, town)
    assert "round 4: 2 of 3 nodes, on which 26 of 39 users are enrolled" in caplog.text
    with open_store(outcome.store) as store:
        run = store.run(outcome.run_id)
    assert run.status == "finished"
    assert "the last one for 67%" in run.guarantee and "rounds 3 to 4" in run.guarantee


def test_a_whole_federation_is_said_to_be_whole_and_its_guarantee_is_as_it_was(config, run_town):
    outcome = run_town(config(), Town(config()))
    assert outcome.whole and outcome.covered == "Every round had 3 of 3 nodes, 39 of 39 users."
    with open_store(outcome.store) as store:
        assert "rounds had fewer" not in store.run(outcome.run_id).guarantee


@pytest.mark.law("1: the denominator is fixed")
def test_the_denominator_and_the_noise_stay_whoever_is_there(config, run_town, monkeypatch):
    """What is divided by and what noise is added must be the same numbers in every round."""
    from fedlens.server.round import step as private_step

    seen = []
    real = private_step.noised_mean
    monkeypatch.setattr(
        private_step,
        "noised_mean",
        lambda total, **numbers: (
            seen.append((numbers["denominator"], numbers["noise_multiplier"]))
            or real(total, **numbers)
        ),
    )
    town = Town(config(), lambda number: {0: set(), 1: {1}, 2: {2}, 3: {0}}.get(number, set()))
    run_town(town.config, town)
    assert len(seen) == 4 and len(set(seen)) == 1


# The quorum


def test_without_its_quorum_a_run_stops_with_a_reason_and_goes_on_when_they_are_back(
    config, run_town, tmp_path
):
    gone = {3: {1, 2}}
    town = Town(config(), lambda number: gone.get(number, set()))
    with pytest.raises(QuorumMissing, match=r"membership.least_nodes = 0.5"):
        run_town(town.config, town)
    ledger = tmp_path / "run" / "ledger.jsonl"
    assert len(Ledger.verify(ledger)) == 2, "a round that was not asked for costs nothing"
    with open_store(f"sqlite:///{tmp_path / 'run' / 'store.db'}") as store:
        (run,) = store.runs()
    assert run.status == "interrupted"
    assert "1 of the 3 nodes" in run.stop_reason and "resume" in run.stop_reason
    outcome = run_town(town.config, Town(config()))
    assert outcome.rounds == 4 and len(Ledger.verify(ledger)) == 4
    assert [row.round for row in presence_of(outcome).rows] == [1, 2, 3, 4]


def test_a_run_waits_for_its_quorum(config, run_town):
    looks = []

    def away(number):
        if number == 2:
            looks.append(number)
            return {1, 2} if len(looks) < 5 else set()
        return set()

    town = Town(config(membership__patience=30.0), away)
    outcome = run_town(town.config, town)
    assert outcome.whole and len(looks) >= 5


def test_too_few_at_the_beginning_are_refused_before_anything_is_begun(config, run_town, tmp_path):
    strict = config(membership__least_users=0.7)
    with pytest.raises(EnrolmentError, match=r"26 users, data.users declares 39"):
        run_town(strict, Town(strict, lambda _: {2}))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.law("1: a person counts once")
def test_declared_users_and_nodes_are_bounds(config, run_town, caplog):
    outcome = run_town(config(data__users=38), Town(config()))
    assert {row.users for row in presence_of(outcome).rows} == {38}
    assert "node 0 says that it has 13 users" in caplog.text
    outcome = run_town(config(data__nodes=2), Town(config()), "nodes")
    assert {tuple(row.answered) for row in presence_of(outcome).rows} == {(0, 1)}
    assert "node 2 is turned away: data.nodes = 2 is a bound" in caplog.text


# Growing


def test_who_joins_takes_part_once_the_node_was_asked_again(config, run_town, monkeypatch):
    def moved(number, users):
        return fewer(users, 8) if users.partition == 2 and number < 2 else users

    outcome = run_town(config(), Town(config(), moved=moved))
    assert [row.users for row in presence_of(outcome).rows] == [34, 34, 39, 39]
    monkeypatch.setattr(membership, "ASKED_EVERY", 10)
    outcome = run_town(config(), Town(config(), moved=moved), "sooner")
    assert [row.users for row in presence_of(outcome).rows] == [34] * 4
    assert {tuple(row.answered) for row in presence_of(outcome).rows} == {(0, 1, 2)}


def test_who_joins_above_the_bound_waits_and_costs_nobody_a_place(config, run_town, caplog):
    def moved(number, users):
        return fewer(users, 8) if users.partition == 0 and number < 2 else users

    small = config(data__users=36)
    outcome = run_town(small, Town(config(), moved=moved))
    assert [row.users for row in presence_of(outcome).rows] == [34, 34, 36, 36]
    assert "node 0 says that it has 13 users" in caplog.text


@pytest.mark.law("1: a person counts once")
def test_people_for_whom_a_first_node_has_no_place_take_none_beyond_the_bound_at_another(
    config, run_town, clinic, key
):
    """Node 1 names the last of node 0's users too, who lose their places there."""

    town = registered(config, data__users=26, data__nodes=2)

    def moved(_, users):
        return replace(users, ids=node_users(town, 0).ids) if users.partition == 1 else users

    made = registered(config, data__users=10, data__nodes=2)
    outcome = run_town(made, Town(town, moved=moved, **key))
    assert {row.users for row in presence_of(outcome).rows} == {10}


def test_a_node_of_more_users_than_one_may_enrol_takes_part_with_as_many(config, run_town):
    made = config(membership__largest_node=0.26)  # 10 users
    outcome = run_town(made, Town(made))
    assert {row.users for row in presence_of(outcome).rows} == {30}


def test_one_of_another_schema_is_turned_away_and_the_run_goes_on(config, run_town, caplog):
    def moved(number, users):
        return replace(users, classes=7) if users.partition == 2 and number < 3 else users

    away = {1: {2}}
    town = Town(config(), lambda number: away.get(number, set()), moved)
    outcome = run_town(town.config, town)
    assert "node 2 is turned away: its images and classes" in caplog.text
    assert [row.answered for row in presence_of(outcome).rows][:2] == [[0, 1], [0, 1]]


def test_one_whose_data_were_prepared_under_another_contract_is_turned_away(
    config, run_town, caplog
):
    other = DataOrigin(own=True, federation="other", contract="0" * 64)

    def moved(number, users):
        return replace(users, origin=other) if users.partition == 2 else users

    town = Town(config(), lambda number: {2} if number == 1 else set(), moved)
    outcome = run_town(town.config, town)
    assert "node 2 is turned away: it holds data of the federation 'other'" in caplog.text
    assert {row.users for row in presence_of(outcome).rows} == {26}


# A hostile node


HOSTILE = {
    "a million users": {"users": 10**6},
    "more users than memory": {"users": 2**52},
    "another's place": {"partition": 1},
    "another shape": {"shape": (3, 32, 32)},
    "other classes": {"classes": 7},
    "another contract": {"federation": "other", "contract": "0" * 64},
    "another slice": {"slice": "ward=1"},
}


@pytest.mark.parametrize("claim", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.law("1: the server checks every reply")
def test_a_hostile_node_keeps_no_run_from_starting_or_going_on(
    config, run_town, caplog, claim, place
):
    """It may come first or last, and claims what it likes."""

    def lying(message, context):
        reply = town.honest(message, context)
        if (
            context.node_config["partition-id"] == place
            and message.metadata.message_type == DESCRIBE
        ):
            told = Description.from_record(reply.content)
            reply.content = told.model_copy(update=claim).to_record()
        return reply

    made = config(
        data__nodes=4, data__users=52, membership__least_users=0.5, tasks__critic__rounds=2
    )
    town = Town(made)
    town.honest, town._app = town._app, lying
    outcome = run_town(made, town)
    assert outcome.rounds == 2
    rows = presence_of(outcome).rows
    expected = {0, 1, 2, 3} - {place}
    if "partition" in claim:
        expected -= {1}
        assert "claim its partition-id" in caplog.text
    elif "users" in claim:
        assert f"node {place} says that it has {claim['users']} users" in caplog.text
        assert {row.users for row in rows} == {52}, "and nobody else lost a place"
        return
    else:
        assert f"node {place} is turned away" in caplog.text
    assert {tuple(row.answered) for row in rows} == {tuple(sorted(expected))}
    assert {row.users for row in rows} == {13 * len(expected)}, "with all their users"


def test_a_node_that_claims_another_position_later_does_not_count_at_both(config, run_town):
    """Its users would count twice, and a quorum be there that is not."""

    def moved(number, users):
        return replace(users, partition=2) if users.partition == 1 and number > 1 else users

    made = config(membership__least_nodes=1.0)
    town = Town(made, lambda number: {2} if number > 2 else set(), moved)
    with pytest.raises(QuorumMissing, match="2 of the 3 nodes"):
        run_town(made, town)
    assert town.asked == [{0, 1, 2}] * 2


def test_a_position_belongs_to_the_key_that_had_it(config, run_town, tmp_path, monkeypatch, caplog):
    """A SuperLink knows its nodes' keys: a liar costs nobody a part but in the very first run."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path))
    names = {FIRST_NODE_ID + number: f"node-{number + 1}" for number in range(4)}
    (tmp_path / "node-names.json").write_text(json.dumps(names))
    made = config(
        data__nodes=4, data__users=52, membership__least_users=0.5, tasks__critic__rounds=1
    )
    claims: dict[int, int] = {}

    def lying(message, context):
        reply = honest(message, context)
        claim = claims.get(context.node_config["partition-id"])
        if claim is not None and message.metadata.message_type == DESCRIBE:
            told = Description.from_record(reply.content)
            reply.content = told.model_copy(update={"partition": claim}).to_record()
        return reply

    def answered(name: str) -> list[int]:
        nonlocal honest
        town = Town(made)
        honest, town._app = town._app, lying
        (row,) = presence_of(run_town(made, town, name)).rows
        return list(row.answered)

    honest = None
    assert answered("first") == [0, 1, 2, 3]
    claims[3] = 1
    assert answered("lied") == [0, 1, 2]
    assert "node-4 is turned away: its partition-id is that of node-2" in caplog.text
    del names[FIRST_NODE_ID + 1]  # who is shut out has no position any more
    (tmp_path / "node-names.json").write_text(json.dumps(names))
    claims[1] = 7
    assert answered("freed") == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("wanted", "held", "given"),
    [
        ((13, 10**6, 13, 13), (0, 0, 0, 0), [13, 13, 13, 13]),  # whatever one claims
        ((13, 10**6, 0, 13), (0, 0, 0, 0), [13, 26, 0, 13]),
        ((20, 10**6, 13, 13), (13, 13, 13, 13), [13, 13, 13, 13]),  # who has a place keeps it
        ((13, 10**6, 13, 13), (0, 39, 13, 0), [0, 39, 13, 0]),
        ((5, 20, 13, 13), (13, 13, 13, 13), [5, 20, 13, 13]),  # who leaves makes room
    ],
)
def test_what_a_node_claims_takes_no_place_of_others(wanted, held, given):
    assert share_places(wanted, held, 52) == given


# Sums that nodes mask


MASKED = {
    "aggregation__secure": True,
    "aggregation__tolerated_dropouts": 1,
    "tasks__critic__kind": "frozen",
    "tasks__critic__rounds": 2,
    "tasks__critic__faithful_steps": 1,
}


@pytest.mark.parametrize("noise", ["server", "distributed"])
def test_a_node_that_is_away_counts_as_a_dropout_of_a_masked_sum(config, run_town, noise):
    made = config(**MASKED, aggregation__noise=noise)
    outcome = run_town(made, Town(made, lambda number: {1} if number == 2 else set()))
    assert [row.answered for row in presence_of(outcome).rows] == [[0, 1, 2], [0, 2]]
    assert [row.users for row in presence_of(outcome).rows] == [39, 26]


def test_a_masked_sum_waits_for_as_many_nodes_as_it_needs_and_is_not_charged_without_them(
    config, run_town, tmp_path
):
    made = config(**MASKED, membership__least_users=0.3)
    with pytest.raises(QuorumMissing, match="tolerated_dropouts = 1"):
        run_town(made, Town(made, lambda number: {1, 2} if number == 2 else set()))
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1


def test_nodes_that_draw_by_themselves_cannot_leave_a_revoked_user_out(
    config, run_town, clinic, key, tmp_path
):
    made = registered(config, **MASKED, aggregation__noise="distributed")
    run_town(made, Town(made, **key))
    with open_store(registry_url("clinic")) as registry:
        gone = registry.members(clinic.identity, node=1)[0].number
        registry.set_revoked(clinic.identity, number=gone, on=True)
    with pytest.raises(EnrolmentError, match="nodes draw their users by themselves"):
        run_town(made, Town(made, **key), "second")
    with open_store(RunDirectory(tmp_path / "second").default_store) as store:
        (run,) = store.runs()
    assert run.status == "interrupted" and "nodes draw their users" in str(run)


# Bayesian figures are means over users


def test_bayesian_figures_are_means_over_those_enrolled_and_not_over_the_bound(
    config, run_town, tmp_path
):
    outcome = run_town(config(), Town(config(), lambda _: {2}))
    directory = RunDirectory(tmp_path / "run")
    ledger = Ledger.read(directory.ledger)
    assert ledger.header[ENROLLED] == 26
    from fedlens.accountant.ledger.evidence import EvidenceFile

    account = account_of(config(), directory, ledger, EvidenceFile(directory.evidence))
    assert account._bayesian._users == 26
    assert outcome.spending.bdp_corrected <= outcome.spending.dp_epsilon_at_bdp_delta


# The registry


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    terms = PopulationTerms("clinic", unit="user", delta=1e-3, epsilon_budget=1e6)
    return Population.create(population_folder("clinic"), terms)


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    return {"members-key-file": str(path)}


def registered(config, **changes):
    return config(privacy__population="clinic", privacy__fixed_seed=-1, **changes)


def test_users_are_registered_by_keyed_numbers_and_days(config, run_town, clinic, key):
    made = registered(config)
    outcome = run_town(made, Town(made, **key))
    with open_store(registry_url("clinic")) as registry:
        people = registry.members(clinic.identity)
        assert [n.users for n in registry.member_nodes(clinic.identity)] == [13, 13, 13]
    assert len({p.number for p in people}) == 39 and outcome.rounds == 4
    assert all(p.revoked is None and p.until is None for p in people)
    numbers = {p.number for p in people if p.node == 0}
    other = members_of(node_users(made, 0), {**key, "partition-id": 0})
    assert numbers == {int.from_bytes(other[i : i + 8], "big") for i in range(0, len(other), 8)}
    assert not numbers & set(range(100)), "a number is no position"


@pytest.mark.law("1: a person counts once")
def test_a_revoked_user_is_never_drawn_again(config, run_town, clinic, key, monkeypatch):
    made = registered(config, tasks__critic__sampling_rate=1.0)
    run_town(made, Town(made, **key))
    with open_store(registry_url("clinic")) as registry:
        gone = registry.members(clinic.identity, node=1)[0].number
        registry.set_revoked(clinic.identity, number=gone, on=True)
    from fedlens.client import train as cohort

    drawn, real = [], cohort.train_cohort
    monkeypatch.setattr(
        cohort,
        "train_cohort",
        lambda users, request, *more: (
            drawn.append(len(request.users)) or real(users, request, *more)
        ),
    )
    outcome = run_town(made, Town(made, **key), "second")
    assert sorted(drawn[:3]) == [12, 13, 13] and sum(drawn) == 4 * 38
    assert {row.users for row in presence_of(outcome).rows} == {38}


def test_nodes_of_record_mode_cannot_leave_a_revoked_user_out(config, run_town, clinic, key):
    record = {"privacy__unit": "record", "privacy__delta": 1e-5, "data__records_per_node": 100}
    users = registered(config)
    run_town(users, Town(users, **key))
    with open_store(registry_url("clinic")) as registry:
        gone = registry.members(clinic.identity, node=1)[0].number
        registry.set_revoked(clinic.identity, number=gone, on=True)
    made = config(**record, tasks__critic__sampling_rate=0.2)
    grid = Town(made, **key)
    federation = enrol(grid, made, ((gone,), ()))
    task = scheduled(made)[0]
    step = PrivateStep(StepPlan(made, task, grid, federation, 9, 1.0))
    with pytest.raises(EnrolmentError, match="nodes go by all records that they hold"):
        step.meet(federation.roster)


@pytest.mark.parametrize("members", [b"x" * 14 * 8, b"x" * 8, b"\xff" * 13 * 8, b"x"], ids=len)
def test_a_node_that_gives_its_users_no_number_each_takes_no_part(
    config, monkeypatch, caplog, members
):
    """More numbers than users would hide users from the bound, and large ones fit no store."""
    made = config()
    monkeypatch.setattr(fedlens.client.app, "members_of", lambda users, own: members)
    with pytest.raises(EnrolmentError, match="no node can take part"):
        enrol(Town(made), made)
    assert "a node cannot take part" in caplog.text


def test_a_node_at_an_endless_position_takes_no_part(config):
    made = config()
    far = Town(made, moved=lambda number, users: replace(users, partition=users.partition + 2**31))
    with pytest.raises(EnrolmentError, match="no node can take part"):
        enrol(far, made)


def test_a_revoked_node_is_not_asked(config, run_town, clinic, key):
    made = registered(config)
    run_town(made, Town(made, **key))
    with open_store(registry_url("clinic")) as registry:
        registry.set_revoked(clinic.identity, node=2, on=True)
        with pytest.raises(StoreError, match="node = 9"):
            registry.set_revoked(clinic.identity, node=9, on=True)
    town = Town(made, **key)
    run_town(made, town, "second")
    assert town.asked == [{0, 1}] * 4


@pytest.mark.law("1: a person counts once")
def test_a_user_on_two_nodes_counts_on_the_first_alone(config, run_town, clinic, key, caplog):
    def moved(number, users):
        ids = users.ids.copy()
        if users.partition == 2:
            ids[4] = 3  # whom node 0 has too
        return replace(users, ids=ids)

    made = registered(config, tasks__critic__sampling_rate=1.0)
    outcome = run_town(made, Town(made, moved=moved, **key))
    assert {row.users for row in presence_of(outcome).rows} == {38}
    assert "1 user is enrolled on several nodes" in caplog.text
    with open_store(registry_url("clinic")) as registry:
        twice = [p for p in registry.members(clinic.identity) if p.node in (0, 2)]
    numbers = [p.number for p in twice]
    assert len(numbers) - len(set(numbers)) == 1


def test_nodes_without_a_key_are_named_where_others_have_one(config, key, caplog):
    made = config()

    def warned(town):
        caplog.clear()
        there = membership.Membership(made, town, enrol(town, made))
        there.wait_for_quorum()
        return [m for m in caplog.messages if "no keyed numbers" in m]

    some = Town(made, **key)
    del some._contexts[FIRST_NODE_ID + 1].node_config["members-key-file"]
    (said,) = warned(some)  # once, however often it looks
    assert "partition-id [1]" in said and "members-key-file" in said
    assert warned(Town(made, **key)) == warned(Town(made)) == []


def test_a_user_put_in_anothers_place_gets_a_place_of_its_own(config, run_town, clinic, key):
    """As many users as before, but others: no place means somebody else within a run."""

    def moved(number, users):
        if users.partition == 1 and number > 1:
            return replace(users, ids=np.concatenate([users.ids[1:], [99]]))
        return users

    made, town = registered(config, data__users=40), registered(config)
    outcome = run_town(made, Town(town, moved=moved, **key))
    assert [row.users for row in presence_of(outcome).rows] == [39, 39, 40, 40]
    run_town(made, Town(town, moved=lambda _, users: moved(2, users), **key), "second")
    with open_store(registry_url("clinic")) as registry:
        people = registry.members(clinic.identity, node=1)
    assert len(people) == 14 and sum(p.until is not None for p in people) == 1


@pytest.mark.parametrize("content", [b"short", b"x" * 65], ids=["short", "long"])
def test_a_key_of_another_size_is_refused(config, tmp_path, content):
    path = tmp_path / "bad"
    path.write_bytes(content)
    from fedlens.client.users.protocol import NodeDataError

    with pytest.raises(NodeDataError, match="random ones"):
        members_of(node_users(config(), 0), {"members-key-file": str(path)})


def test_the_command_lists_and_revokes(config, run_town, clinic, key, capsys):
    assert main(["population", "members", "clinic"]) == 2
    assert "no registry yet" in capsys.readouterr().err
    made = registered(config, tasks__critic__rounds=1)
    run_town(made, Town(made, **key))
    assert main(["population", "members", "clinic", "--node", "7"]) == 2
    assert "--node 7: the population knows no such node; there are: 0" in capsys.readouterr().err
    assert main(["population", "members", "clinic", "--node", "0", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [node["users"] for node in listed["nodes"]] == [13, 13, 13]
    number = listed["users"][0]["number"]
    assert main(["population", "revoke", "clinic", "--user", str(number)]) == 0
    assert main(["population", "revoke", "clinic", "--user", "1"]) == 1
    with open_store(registry_url("clinic")) as registry:
        assert registry.revoked(clinic.identity)[0] == {number}
    assert main(["population", "revoke", "clinic", "--user", str(number), "--undo"]) == 0
    with open_store(registry_url("clinic")) as registry:
        assert registry.revoked(clinic.identity)[0] == frozenset()


def revoked_at_node_1(clinic):
    with open_store(registry_url("clinic")) as registry:
        gone = registry.members(clinic.identity, node=1)[0].number
        registry.set_revoked(clinic.identity, number=gone, on=True)
    return gone


@pytest.mark.parametrize("how", ["no key any more", "another key"])
def test_a_node_that_no_longer_says_who_is_revoked_is_turned_away(
    config, run_town, clinic, key, tmp_path, caplog, how
):
    """Or the revoked user would be drawn again, under another number or none."""
    made = registered(config)
    run_town(made, Town(made, **key))
    gone = revoked_at_node_1(clinic)
    town, own = Town(made, **key), "members-key-file"
    if how == "another key":
        (tmp_path / "other").write_bytes(bytes(32))
        town._contexts[FIRST_NODE_ID + 1].node_config[own] = str(tmp_path / "other")
    else:
        del town._contexts[FIRST_NODE_ID + 1].node_config[own]
    outcome = run_town(made, town, "second")
    assert "node 1 is turned away: one of its users is revoked" in caplog.text
    assert {row.users for row in presence_of(outcome).rows} == {26}
    with open_store(registry_url("clinic")) as registry:
        registry.set_revoked(clinic.identity, number=gone, on=False)
    assert run_town(made, town, "third").whole


def test_where_every_node_is_turned_away_the_servers_log_is_named(config, caplog):
    made = config()
    with pytest.raises(EnrolmentError, match="see this log and the nodes' own"):
        enrol(Town(made), made, objection=lambda node: "an objection")
    assert caplog.text.count("is turned away: an objection") == NODES


def test_revoking_a_number_that_no_node_names_any_more_says_so(
    config, run_town, clinic, key, tmp_path, capsys
):
    """Under another key the same person has another number, and would be drawn all the same."""
    made = registered(config, tasks__critic__rounds=1)
    run_town(made, Town(made, **key))
    with open_store(registry_url("clinic")) as registry:
        old, other = (one.number for one in registry.members(clinic.identity, node=1)[:2])
    revoke = ["population", "revoke", "clinic", "--json", "--user"]
    assert main([*revoke, str(other)]) == 0
    assert "no node names" not in capsys.readouterr().out
    assert main([*revoke, str(other), "--undo"]) == 0
    town = Town(made, **key)
    (tmp_path / "other").write_bytes(bytes(32))
    town._contexts[FIRST_NODE_ID + 1].node_config["members-key-file"] = str(tmp_path / "other")
    assert run_town(made, town, "second").whole
    capsys.readouterr()
    assert main([*revoke, str(old)]) == 0
    said, told = capsys.readouterr().out.strip().splitlines()[-2:]
    assert "no node names this user now" in said and json.loads(told)["enrolled"] is False


def test_one_that_is_revoked_meanwhile_on_a_node_without_a_key_takes_it_out(
    config, run_town, clinic, key
):
    made = registered(config)
    run_town(made, Town(made, **key))

    def moved(number, users):
        if number == 3 and users.partition == 1 and not said:
            said.append(revoked_at_node_1(clinic))
        return users

    said, town = [], Town(made, moved=moved, **key)
    del town._contexts[FIRST_NODE_ID + 1].node_config["members-key-file"]
    outcome = run_town(made, town, "second")
    assert [row.users for row in presence_of(outcome).rows] == [39, 39, 39, 26]


def test_where_the_registry_is_lost_no_run_goes_on_as_if_nobody_were_revoked(
    config, run_town, clinic, key
):
    made = registered(config)
    run_town(made, Town(made, **key))
    path = population_folder("clinic") / "members.db"
    for file in path.parent.glob("members.db*"):
        file.unlink()
    town = Town(made, **key)
    with pytest.raises(PopulationError, match="with it who is revoked"):
        run_town(made, town, "second")
    assert not town.asked and not path.exists()
    path.touch()
    assert run_town(made, town, "second").whole
