"""What a round gathered is sealed: nothing noised can be had before its line is on disk."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.chain import LedgerEntry
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.schedule import scheduled
from fedlens.server.federation.enrolment import enrol
from fedlens.server.learning.learner import Learner
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round import step as private_step
from fedlens.server.round.aggregation import ONE_RECORD
from fedlens.server.round.masked_step import SecureStep
from fedlens.server.round.step import NoUsableReply, PrivateStep, StepPlan
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid

ROOT = Path(__file__).resolve().parents[2]
SECURE = {
    "data__nodes": 5,
    "aggregation__secure": True,
    "aggregation__tolerated_dropouts": 1,
    "aggregation__colluding": 1,
}
MODES = {
    "user": {},
    "record": {
        "privacy__unit": "record", "privacy__delta": 1e-5, "data__records_per_node": 100,
    },
    "masked": SECURE,
    "masked noise": {**SECURE, "aggregation__noise": "distributed"},
}  # fmt: skip


class Refused(Exception):
    """What a charge that cannot be paid raises."""


class Charge:
    """Notes what is asked of it; ``refuses``: it cannot be paid."""

    def __init__(self, event: SubsampledGaussian, refuses: bool = False) -> None:
        self.event, self.entry, self.calls = event, None, []
        self._refuses = refuses

    def pay(self, norms=None) -> LedgerEntry:
        self.calls.append("pay")
        if self._refuses:
            raise Refused
        self.entry = LedgerEntry(0, 1, self.event, "test", "", None, "", "")
        return self.entry

    def pay_ahead(self, *, norms):
        self.pay()
        return self

    def book(self, norms) -> None:
        self.calls.append("book" if norms is None else "book norms")


@pytest.fixture
def asking(small_config):
    """A step over the small federation, and how often its nodes were asked."""

    def make(mode: str, app=client_app):
        config = small_config(tasks__critic__kind="frozen", **MODES[mode])
        asked: list[str] = []

        def counting(message, context):
            asked.append(message.metadata.message_type)
            return app(message, context)

        grid = InProcessGrid(counting, config.data.nodes, config.flat())
        federation, task = enrol(grid, config), scheduled(config)[0]
        learner = Learner(config, federation)
        learner.prepare(task)
        state = learner.task(task)
        kind = SecureStep if config.aggregation.secure else PrivateStep
        step = kind(StepPlan(config, task, grid, federation, state.size, state.largest_reply))
        asked.clear()
        return step, learner.asked(task), task, asked

    return make


@pytest.fixture
def drawn(monkeypatch):
    """How often the server drew a sum's noise."""
    calls, real = [], private_step.noised_mean
    monkeypatch.setattr(
        private_step, "noised_mean", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    return calls


@pytest.mark.parametrize("mode", MODES)
def test_a_release_carries_the_line_that_paid_for_it(asking, mode):
    step, request, task, _ = asking(mode)
    charge = Charge(task.event)
    release = step.ask(1, request).open(charge)
    assert release.entry is charge.entry is not None
    assert np.isfinite(release.values).all() and release.accepted == tuple(
        range(step.config.data.nodes)
    )
    assert charge.calls[0] == "pay" and charge.calls.count("pay") == 1


@pytest.mark.parametrize("mode", MODES)
def test_without_payment_nothing_is_noised_and_no_noised_reply_is_asked_for(asking, drawn, mode):
    step, request, task, asked = asking(mode)
    sealed = step.ask(1, request)
    before = list(asked)
    assert (before == []) == (mode == "record") and not drawn
    with pytest.raises(Refused):
        sealed.open(Charge(task.event, refuses=True))
    assert asked == before and not drawn


@pytest.mark.parametrize("mode", MODES)
def test_a_round_that_fails_is_paid_for_before_its_error(asking, mode):
    from flwr.app import Message

    from fedlens.client.messages import failure

    def silent(message, context):
        if message.metadata.message_type == "query.describe":
            return client_app(message, context)
        return Message(failure(), reply_to=message)

    step, request, task, _ = asking(mode, silent)
    charge = Charge(task.event)
    sealed = step.ask(1, request)
    with pytest.raises(NoUsableReply):
        sealed.open(charge)
    assert charge.calls == ["pay"]


def test_a_masked_round_that_fails_once_it_is_paid_for_is_booked_without_norms(asking, monkeypatch):
    step, request, task, _ = asking("masked noise")
    charge, sealed = Charge(task.event), step.ask(1, request)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "unmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sealed.open(charge)
    assert charge.calls == ["pay", "book"]


def test_a_charge_for_other_neighbours_pays_for_nothing(asking, drawn):
    step, request, task, _ = asking("user")
    charge = Charge(replace(task.event, unit="record"))
    with pytest.raises(WrongUse, match="bounded for"):
        step.ask(1, request).open(charge)
    sealed = step.ask(1, request)
    other = replace(sealed.aggregate.total, neighbours=ONE_RECORD)
    sealed = replace(sealed, aggregate=replace(sealed.aggregate, total=other))
    with pytest.raises(WrongUse, match="bounded for"):
        sealed.open(Charge(task.event))
    assert charge.calls == [] and not drawn


def test_a_charge_pays_for_one_release(asking, small_config, drawn, tmp_path):
    """Noise that is drawn twice for one sum averages out."""
    step, request, task, _ = asking("user")
    config = small_config(tasks__critic__kind="frozen")
    directory = RunDirectory.create(tmp_path / "run", config)
    charge = RunLedger(config, directory, "abc").prepare_charge(task, 1)
    sealed = step.ask(1, request)
    sealed.open(charge)
    with pytest.raises(WrongUse, match="paid for"):
        sealed.open(charge)
    assert len(drawn) == 1 and len(Ledger.verify(directory.ledger)) == 1


def test_releases_are_made_and_noise_is_drawn_where_a_seal_is_opened_alone():
    """In the source: a release, or a call of what draws noise, stands in a class with `open`."""
    found = []
    for path in sorted((ROOT / "server").rglob("*.py")):
        for outer in ast.parse(path.read_text(encoding="utf-8")).body:
            opens = any(
                getattr(inner, "name", "") == "open" for inner in ast.iter_child_nodes(outer)
            )
            for node in ast.walk(outer):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name in ("RoundRelease", "noised_mean", "noised_norms"):
                    found.append((getattr(outer, "name", ""), name, opens))
    assert {name for _, name, _ in found} == {"RoundRelease", "noised_mean", "noised_norms"}
    assert [one for one in found if not one[2]] == []
