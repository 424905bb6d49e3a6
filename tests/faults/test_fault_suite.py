"""The fault suite and the fuzzers, in short: whole with ``python -m harness.faults``."""

from __future__ import annotations

import itertools

import pytest
import torch

from fedlens.store import open_store
from fedlens.store.engine import locate, make_engine
from harness.faults.checks import problems_at_end, problems_between
from harness.faults.power import cut_power
from harness.faults.scenarios import befallen, settings
from harness.faults.victim import DRAWS, PHASES, Mishap, Victim
from harness.fuzzing.__main__ import fuzz
from harness.fuzzing.targets import targets

ROUNDS = 3


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # what is forked must not have threads
    yield
    torch.set_num_threads(before)


@pytest.fixture
def config():
    return settings(tasks__critic__rounds=ROUNDS)


@pytest.fixture
def places(tmp_path):
    numbers = itertools.count(1)

    def place():
        folder = tmp_path / f"victim{next(numbers)}"
        folder.mkdir()
        return folder, ""

    return place


def mishaps(*some):
    return itertools.chain(some, itertools.repeat(Mishap()))


SHORT = [
    Mishap("ledger line", "after", 1),
    Mishap("release kept", "before", 1),
    Mishap("state saved", "before", 1),
]


@pytest.mark.law("crashes: a killed run goes on")
def test_killed_where_it_hurts_a_run_goes_on_and_no_noise_comes_twice(config, places):
    found = befallen("kill", mishaps(*SHORT), 3, places, config=config)
    assert found.problems == [] and found.clean == 3 and found.lost == 2


@pytest.mark.law("crashes: a killed run goes on")
def test_what_was_not_flushed_before_a_power_cut_is_not_missed(config, places):
    cuts = (Mishap("release kept", "after", 1), Mishap("round published", "before", 1))
    found = befallen("cut", mishaps(*cuts), 2, places, config=config, afterwards=cut_power)
    assert found.problems == [] and found.clean == 2


@pytest.mark.law("crashes: a killed run goes on")
def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(config, places):
    found = befallen("disk", mishaps(Mishap(largest_file=900)), 1, places, config=config)
    assert found.problems == [] and found.clean == 1


def test_a_power_cut_takes_exactly_what_was_not_flushed(config, places):
    folder, _ = places()
    victim = Victim(folder, config)
    assert victim.suffer(Mishap("state saved", "after", 1)) == -9
    whole = (victim.run / "ledger.jsonl").read_bytes()
    with (victim.run / "ledger.jsonl").open("ab") as file:
        file.write(b'{"never": "flushed"')
    (victim.run / "made-since").write_text("x")
    assert cut_power(victim) >= 2
    assert (victim.run / "ledger.jsonl").read_bytes() == whole
    assert not (victim.run / "made-since").exists()
    assert (victim.run / "config.toml").exists() and problems_between(victim) == []


def drawn(*draws):
    return "".join(
        f'{{"round": {number}, "noise": "{noise}", "entries": {entries}}}\n'
        for number, noise, entries in draws
    )


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        (drawn((1, "a", 1), (2, "a", 2)), "twice"),
        (drawn((1, "a", 1), (1, "b", 1)), "twice"),
        (drawn((0, "a", 1)), "without an entry"),
    ],
)
def test_repeated_and_unaccounted_noise_would_be_found(config, places, notes, problem):
    folder, _ = places()
    (folder / DRAWS).write_text(notes)
    assert any(problem in what for what in problems_between(Victim(folder, config)))


def test_a_store_that_lacks_a_release_would_be_found(config, places):
    folder, _ = places()
    victim = Victim(folder, config)
    assert victim.suffer(Mishap()) == 0 and problems_at_end(victim) == []
    with open_store(f"sqlite:///{victim.run / 'store.db'}") as store:
        (run,) = store.runs()
        store.set_run_status(run.run_id, "failed")
    assert problems_at_end(victim) == ["store: the run is failed"]
    with make_engine(locate(victim.run / "store.db")).connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() >= 2  # FULL


def test_every_phase_is_one_that_a_run_goes_through():
    for owner, name in PHASES.values():
        assert callable(getattr(owner, name))


# Fuzzing


@pytest.fixture(scope="module")
def fuzzed():
    with targets() as known:
        yield {name: fuzz(target, 30, seed=11) for name, target in known.items()}


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_no_spoiled_input_crashes_or_hangs_a_parser(fuzzed):
    assert len(fuzzed) >= 15
    assert {name: one.examples for name, one in fuzzed.items() if one.crashes} == {}
    assert all(one.hangs == 0 for one in fuzzed.values())
    assert all(one.accepted + one.refused == one.inputs for one in fuzzed.values())
    assert sum(one.refused for one in fuzzed.values()) > 150, "inputs are not spoiled enough"


def test_a_parser_that_crashes_or_hangs_would_be_found(monkeypatch):
    from harness.fuzzing import __main__ as fuzzing
    from harness.fuzzing.targets import FuzzTarget

    monkeypatch.setattr(fuzzing, "HANG_SECONDS", 0.05)

    def parse(number):
        if number > 0.5:
            raise KeyError("spoiled")
        while True:
            pass

    found = fuzz(FuzzTarget("bad", lambda source: source.random(), parse), 8, seed=1)
    assert found.crashes + found.hangs == 8 and found.hangs and found.crashes
