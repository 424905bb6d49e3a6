"""Nothing that a run leaves says when it was, finer than a day that data cannot move."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.api.runs import SUMMARY, Run
from fedlens.client.app import build_client_app
from fedlens.foundation import dates
from fedlens.server.config.sections import RoundsConfig
from fedlens.server.round import slots
from fedlens.server.round.slots import RoundSlots
from fedlens.server.round.step import NoUsableReply
from fedlens.server.run.directory import FILE, RunDirectory, load_key
from fedlens.simulations.federation.apps import open_simulated_users
from fedlens.store import open_store

ROUNDS = 8
HEAVY = (2, 3, 5, 8)
"""Rounds for which a user is drawn who takes the node long."""
DAY = 86_400
CLOCK = re.compile(rb"\d\d:\d\d:\d\d")


class SlowWhenDrawn:
    """A ClientApp that takes its time in the rounds for which a heavy user was drawn."""

    def __init__(self, wait):
        self._honest, self._wait = build_client_app(open_simulated_users), wait

    def __call__(self, message, context):
        if message.metadata.message_type == "train":
            self._wait(int(message.metadata.group_id) in HEAVY)
        return self._honest(message, context)


def sleeping(heavy):
    time.sleep(0.15 if heavy else 0.0)


@pytest.fixture
def rounds(small_config):
    def make(**changes):
        return small_config(tasks__critic__rounds=ROUNDS, **changes)

    return make


def clocks_of(folder, outcome):
    """Every clock that an attacker who has all the files can read, in seconds by round."""
    entries = Ledger.read(folder / "ledger.jsonl").entries
    with open_store(outcome.store) as store:
        rows = store.ledger(outcome.run_id)
        strips = [b for b in store.batches(outcome.run_id) if b.purpose == "strip"]
    made = [folder / "checkpoint" / f"generator-{n:06d}.safetensors" for n in range(1, ROUNDS + 1)]
    return {
        "ledger": [datetime.fromisoformat(entry.at).timestamp() for entry in entries],
        "store": [_seconds(row.created_at) for row in rows],
        "batches": [_seconds(batch.created_at) for batch in strips],
        "files": [path.stat().st_mtime for path in made],
    }


def _seconds(when):
    return datetime.fromisoformat(str(when)).timestamp()


def auc(scores, labels):
    """Area under the ROC curve: how often a drawn round scores above another; ties count half."""
    drawn = [s for s, label in zip(scores, labels, strict=True) if label]
    others = [s for s, label in zip(scores, labels, strict=True) if not label]
    wins = sum((a > b) + (a == b) / 2 for a in drawn for b in others)
    return wins / (len(drawn) * len(others))


@pytest.mark.law("6: nothing is stored with a time")
def test_no_stored_time_tells_for_which_rounds_a_heavy_user_was_drawn(rounds, run_small, tmp_path):
    """The attack ranks rounds by how long after the one before they were written."""
    outcome = run_small(rounds(), app=SlowWhenDrawn(sleeping))
    labels = [number in HEAVY for number in range(2, ROUNDS + 1)]
    for name, clock in clocks_of(tmp_path / "run", outcome).items():
        assert len(clock) == ROUNDS, name
        took = [after - before for before, after in itertools.pairwise(clock)]
        assert auc(took, labels) == 0.5, name


@pytest.mark.law("6: nothing is stored with a time")
def test_all_files_of_a_run_have_the_date_of_a_day_and_hold_no_time(rounds, run_small, tmp_path):
    run_small(rounds())
    folder = tmp_path / "run"
    found = [folder, *folder.rglob("*")]
    assert len(found) > 10
    for path in found:
        assert path.stat().st_mtime_ns % (DAY * 10**9) == 0, path.name
        if path.is_file():
            assert not CLOCK.search(path.read_bytes()), path.name


def test_files_have_no_time_where_a_run_was_cut_off_either(
    rounds, run_small, monkeypatch, tmp_path
):
    def cut(directory, number):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "drop_release", cut)
    with pytest.raises(KeyboardInterrupt):
        run_small(rounds())
    for path in (tmp_path / "run").rglob("*"):
        assert path.stat().st_mtime_ns % (DAY * 10**9) == 0, path.name


def test_the_store_has_no_column_for_a_time_or_a_duration_of_a_run(rounds, run_small, tmp_path):
    """Only what people do in the dashboard has times, and studies of filters."""
    run_small(rounds())
    with sqlite3.connect(tmp_path / "run" / "store.db") as connection:
        tables = [
            n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        columns = {
            (table, row[1], row[2])
            for table in tables
            for row in connection.execute(f"PRAGMA table_info({table})")
        }
    timed = {(table, name) for table, name, kind in columns if kind in ("DATETIME", "TIMESTAMP")}
    assert timed == {
        ("projects", "created_at"),
        ("annotations", "created_at"),
        ("adjudications", "created_at"),
        ("spending_requests", "created_at"),
        ("spending_requests", "changed_at"),
        ("spending_rules", "created_at"),
        ("sign_ins", "expires_at"),
        ("leases", "until"),
        ("findings", "created_at"),
        ("findings", "changed_at"),
        ("finding_entries", "happened_at"),
        ("privatizer_curves", "at"),
    }
    lengths = {
        (table, name) for table, name, _ in columns if "second" in name or name.endswith("_ms")
    }
    assert lengths == {
        ("privatizer_points", "seconds"),
        ("privatizer_points", "latency_ms"),
        ("annotations", "lead_ms"),
        ("projects", "lease_seconds"),
    }


def test_how_many_rounds_a_day_has_room_for_does_not_show(rounds, run_small, monkeypatch, tmp_path):
    """A run over midnight keeps the day on which its process began."""
    real = dates.today()
    days = iter([real] * 2 + [real + timedelta(days) for days in range(1, 10_000)])
    monkeypatch.setattr("fedlens.accountant.ledger.ledger.today", lambda: next(days))
    outcome = run_small(rounds())
    entries = Ledger.read(tmp_path / "run" / "ledger.jsonl").entries
    assert len({entry.at for entry in entries}) == 1
    with open_store(outcome.store) as store:
        dated = {batch.created_at for batch in store.batches(outcome.run_id)}
    assert dated == {date.fromisoformat(entries[0].at)}


class FakeClock:
    """Time that passes only where a node works or somebody waits."""

    def __init__(self):
        self.now = 1003.0

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.law("6: replies can wait for a fixed time")
def test_with_a_fixed_clock_all_that_shows_live_comes_at_times_that_data_cannot_move(
    rounds, run_small, monkeypatch, unit
):
    seen = {}
    for case in ("light", "heavy"):
        clock, released, shown = FakeClock(), [], []
        monkeypatch.setattr(slots, "time", clock)
        save = RunDirectory.save_release

        def kept(directory, *release, save=save, clock=clock, released=released):
            released.append(clock.now)
            save(directory, *release)

        def work(heavy, clock=clock, case=case):
            clock.now += 4.0 if heavy and case == "heavy" else 0.5

        with monkeypatch.context() as patch:
            patch.setattr(RunDirectory, "save_release", kept)
            config = rounds(rounds__slot=10, privacy__unit=unit, privacy__delta=1e-5)
            run_small(
                config,
                case,
                app=SlowWhenDrawn(work),
                observer=lambda progress, clock=clock, shown=shown: shown.append(clock.now),
            )
        seen[case] = released, shown
    assert seen["light"] == seen["heavy"]
    released, shown = seen["heavy"]
    assert len(released) == ROUNDS and {t % 10 for t in released + shown} == {0.0}


@pytest.mark.law("6: replies can wait for a fixed time")
def test_a_round_that_fails_takes_as_long_as_any(rounds, run_small, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(slots, "time", clock)

    def dead(heavy):
        clock.now += 1.0
        raise RuntimeError

    with pytest.raises(NoUsableReply):
        run_small(rounds(rounds__slot=10), app=SlowWhenDrawn(dead))
    assert clock.now % 10 == 0


def test_nodes_are_waited_for_within_the_slot():
    assert RoundsConfig(deadline=600, slot=0).wait == 600
    assert RoundsConfig(deadline=600, slot=60).wait == pytest.approx(54)
    assert RoundsConfig(deadline=20, slot=60).wait == 20


@pytest.mark.parametrize(
    ("asked", "now", "end"),
    [(60, 61, 120), (65, 70, 180), (60, 119, 120), (60, 121, 180)],
)
def test_a_slot_ends_where_the_wait_is_over_on_the_grid(asked, now, end):
    assert RoundSlots(RoundsConfig(slot=60)).end(asked, now) == end


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, -0.01])
def test_a_clock_that_is_set_meanwhile_holds_a_round_up_by_a_slot_at_most(monkeypatch, jump):
    clock = FakeClock()
    wall = [0.0]
    clock.time = lambda: clock.now + wall[0]
    monkeypatch.setattr(slots, "time", clock)
    began = clock.now
    with RoundSlots(RoundsConfig(slot=10)).hold():
        wall[0] = jump
    assert clock.now - began <= 2 * 10
    off = clock.time() % 10
    assert min(off, 10 - off) < 1e-6


def test_a_run_without_a_slot_waits_for_nothing(monkeypatch):
    monkeypatch.setattr(slots.time, "sleep", lambda seconds: pytest.fail("it waited"))
    with RoundSlots(RoundsConfig()).hold():
        pass


def test_what_is_written_last_has_the_day_on_which_the_process_began(
    small_config, monkeypatch, tmp_path
):
    """The summary and the key too, whenever they are written: a crash may leave them so."""
    directory = RunDirectory.create(tmp_path / "run", small_config())
    began = dates.today()
    for module in (
        "fedlens.foundation.dates",
        "fedlens.foundation.files",
        "fedlens.server.run.directory",
    ):
        monkeypatch.setattr(f"{module}.today", lambda: began + timedelta(days=1))
    load_key(small_config(), directory)
    store = directory.default_store
    Run(directory.path, store).keep(SimpleNamespace(to_json=dict), directory)
    for name in (SUMMARY, FILE, "."):
        changed = (directory.path / name).stat().st_mtime
        assert datetime.fromtimestamp(changed, UTC).date() == began, name
