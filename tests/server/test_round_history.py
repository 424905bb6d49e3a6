"""A run keeps its rounds' records in a file that only grows, and a state that does not."""

from __future__ import annotations

import pytest

from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.round import releases
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, Snapshot
from fedlens.server.run.history import RoundHistory


@pytest.fixture
def directory(small_config, tmp_path):
    return RunDirectory.create(tmp_path / "kept", small_config())


def facts(number):
    return {"round": number, "metrics": {"loss": number / 7}}


def state(rounds, **more):
    return Snapshot(rounds, {}, {"lost": [], **more})


def file_of(directory):
    return directory.checkpoints / "rounds.jsonl"


def written(directory, rounds):
    history = RoundHistory(directory)
    for number in range(1, rounds + 1):
        history.append(facts(number))
    return history


def test_rounds_come_back_in_order_and_the_last_one_alone(directory):
    written(directory, 5)
    assert RoundHistory(directory).load(state(5)) == [facts(n) for n in range(1, 6)]
    assert RoundHistory(directory).last(state(5)) == facts(5)
    assert RoundHistory(directory).last(state(3)) == facts(3), "later ones are no state's yet"


@pytest.mark.parametrize(
    "torn", [b"", b'{"round": 4, "met', b"\x00\x00\x00", b'{"round": 4}\n{"ro']
)
def test_what_no_state_knows_of_is_written_over(directory, torn):
    written(directory, 3)
    with file_of(directory).open("ab") as file:
        file.write(torn)
    history = RoundHistory(directory)
    assert len(history.load(state(3))) == 3
    history.append(facts(4))
    assert RoundHistory(directory).load(state(4)) == [facts(n) for n in range(1, 5)]
    assert file_of(directory).read_bytes().count(b"\n") == 4


def test_a_round_that_is_learned_again_has_one_line(directory):
    written(directory, 4)  # the state of round 4 was never saved
    history = RoundHistory(directory)
    history.load(state(3))
    history.append(facts(4))
    assert RoundHistory(directory).load(state(4)) == [facts(n) for n in range(1, 5)]


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[0], lines[2]],
        lambda lines: [lines[0], b"no json\n", lines[2]],
        lambda lines: [lines[0], b"[1]\n", lines[2]],
        lambda lines: [lines[0], b"[" * 100_000 + b"\n", lines[2]],
        lambda lines: [*lines[:2], lines[2].rstrip()],
        lambda lines: [],
    ],
)
def test_rounds_that_are_missing_or_changed_are_named_with_the_fix(directory, harm):
    written(directory, 3)
    file_of(directory).write_bytes(b"".join(harm(file_of(directory).read_bytes().splitlines(True))))
    with pytest.raises(RunDirectoryError, match=r"rounds\.jsonl.*backup"):
        RoundHistory(directory).load(state(3))


def test_a_file_that_is_gone_is_named(directory):
    for look in (RoundHistory(directory).load, RoundHistory(directory).last):
        with pytest.raises(RunDirectoryError, match="missing"):
            look(state(1))


def test_the_state_takes_as_many_bytes_after_many_rounds(
    small_config, run_small, monkeypatch, tmp_path
):
    sizes, save = [], RunDirectory.save_state

    def sized(self, snapshot):
        save(self, snapshot)
        sizes.append((self.checkpoints / "state.safetensors").stat().st_size)

    monkeypatch.setattr(RunDirectory, "save_state", sized)
    run_small(small_config(tasks__critic__rounds=9, tasks__critic__generator_steps=1))
    assert len(sizes) >= 9 and max(sizes) - min(sizes[1:]) <= 16, "but for alignment"


def _killed_at(number, train, killed):
    calls = []

    def counted(self, *arguments, **named):
        calls.append(number)
        return (killed if len(calls) == number else train)(self, *arguments, **named)

    return counted


def test_room_for_releases_counts_what_an_earlier_process_kept(
    small_config, run_small, monkeypatch, tmp_path
):
    config = small_config(tasks__critic__kind="wgan", tasks__critic__generator_steps=1)
    run_small(config)
    sizes = [file.stat().st_size for file in sorted((tmp_path / "run/releases").iterdir())]
    assert len(sizes) == 3
    monkeypatch.setattr(releases, "MOST_BYTES", sizes[0] + sizes[1] + sizes[2] // 2)
    with monkeypatch.context() as patch:
        cut = _killed_at(2, GeneratorTrainer.train, _interrupt)
        patch.setattr(GeneratorTrainer, "train", cut)
        with pytest.raises(KeyboardInterrupt):
            run_small(config, "cut")
    run_small(config, "cut")
    assert len(list((tmp_path / "cut/releases").iterdir())) == 2


def _interrupt(self, *arguments, **named):
    raise KeyboardInterrupt
