"""What the ledger's file does with several writers, with lines of every form, and how quickly."""

import hashlib
import json
import multiprocessing
import os
import time
from dataclasses import replace

import pytest

from fedlens.accountant.events import GaussianRelease, SubsampledGaussian
from fedlens.accountant.ledger import chain
from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerError

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)
EVERYONE = SubsampledGaussian("record", "none", "add-remove", 1.0, 2.0, 0.35)
RELEASE = GaussianRelease("record", "add-remove", 3.0, 5.5, 2, "class counts {}, “quoted”")
DIGEST = "cd" * 32


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def add(ledger, event=EVENT, number=1, **keywords):
    fields = {"round": number, "purpose": "training round", "evidence_digest": None, **keywords}
    return ledger.append(event, **fields)


def seal(record):
    body = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]},"sha256":"{digest}"}}\n'.encode()


@pytest.mark.parametrize("event", [EVENT, EVERYONE, RELEASE, replace(RELEASE, noise_multiplier=0)])
def test_every_kind_of_event_is_read_back_equal(path, event):
    ledger = Ledger.create(path, {})
    added = add(ledger, event, purpose='Ünï "\\ ✓')
    (read,) = Ledger.open(path).entries
    assert (read, read.event, read.purpose) == (added, event, 'Ünï "\\ ✓')


def test_the_run_of_an_entry_is_kept_where_one_was_given(path):
    ledger = Ledger.create(path, {})
    add(ledger, run="a1b2")
    add(ledger)
    first, second = Ledger.open(path).entries
    assert (first.run, second.run) == ("a1b2", None)
    lines = path.read_bytes().splitlines()
    assert ("run" in json.loads(lines[1]), "run" in json.loads(lines[2])) == (True, False)
    with pytest.raises(LedgerError, match="run = 3"):
        add(ledger, run=3)


def test_reading_line_by_line_and_reading_blocks_agree(path, monkeypatch):
    ledger = Ledger.create(path, {})
    for number in range(40):
        event = (EVENT, RELEASE, replace(EVENT, count=number + 1))[number % 3]
        evidence = DIGEST if number % 2 else None
        add(ledger, event, number, evidence_digest=evidence, run="r" if number % 5 else None)
    whole = Ledger.verify(path)
    monkeypatch.setattr(chain, "_BLOCK", 700)
    small = Ledger.verify(path)
    monkeypatch.setattr(chain.Reader, "_quickly", lambda self, data, start, stop: False)
    assert Ledger.verify(path) == small == whole == ledger.entries


@pytest.mark.parametrize(
    "twist",
    [
        lambda text: text.replace('"count":1', '"count":5,"count":1'),
        lambda text: text.replace('"count":1', '"count": 1'),
        lambda text: text.replace('"noise_multiplier":2.0', '"noise_multiplier":2.00'),
        lambda text: text.replace('"purpose":"training', '"purpose":"\\u0074raining'),
        lambda text: text.replace('"round":1', '"round":9,"round":1'),
        lambda text: text.replace('"round":1', '"round":1e0'),
    ],
)
def test_a_line_that_two_readers_could_read_differently_is_refused(path, twist):
    """Its hash fits, but it is not in the one form: keys twice, blanks, another spelling."""
    add(Ledger.create(path, {}))
    header, line = path.read_text().splitlines()
    twisted = twist(line[: line.index(',"sha256"')])
    assert twisted != line[: line.index(',"sha256"')]
    digest = hashlib.sha256(f"{twisted}}}".encode()).hexdigest()
    path.write_text(f'{header}\n{twisted},"sha256":"{digest}"}}\n')
    with pytest.raises(LedgerError, match=r"line 2: (is not canonical|round)"):
        Ledger.verify(path)


@pytest.mark.parametrize("indices", [(0, 2, 1), (0, 2, 3), (0, 0, 1), (1, 2, 3)])
def test_a_chain_whose_lines_count_wrongly_is_refused(path, indices):
    """Every hash fits: the whole file was hashed anew."""
    line, head = chain.header_line({})
    lines = [line]
    for index in indices:
        record = {
            "at": "2026-01-01T00:00:00+00:00", "event": EVENT.to_json(), "evidence_digest": None,
            "index": index, "previous": head, "purpose": "", "round": 1,
        }  # fmt: skip
        lines.append(seal(record))
        head = json.loads(lines[-1])["sha256"]
    path.write_bytes(b"".join(lines))
    wrong = next(i for i, index in enumerate(indices) if index != i)
    with pytest.raises(LedgerError, match=f"line {wrong + 2}: has index"):
        Ledger.verify(path)


def test_a_spliced_line_of_another_ledger_is_named(path, tmp_path):
    ours, theirs = Ledger.create(path, {"n": 1}), Ledger.create(tmp_path / "other", {"n": 2})
    for number in range(1, 6):
        add(ours, number=number)
        add(theirs, number=number)
    lines, foreign = (p.read_bytes().splitlines(keepends=True) for p in (path, theirs.path))
    path.write_bytes(b"".join([*lines[:3], foreign[3], *lines[4:]]))
    with pytest.raises(LedgerError, match="line 4: does not continue"):
        Ledger.verify(path)


def test_a_shared_ledger_reads_what_others_appended_before_it_appends(path):
    one = Ledger.create(path, {})
    two = Ledger.open(path)
    for number in range(3):
        with one.held():
            add(one, number=number, run="one")
        with two.held():
            assert [e.run for e in two.since(2 * number)] == ["one"]
            add(two, number=number, run="two")
    with one.held():
        pass
    assert one.entries == two.entries == Ledger.verify(path)


def test_without_holding_a_shared_ledger_is_refused(path):
    one = Ledger.create(path, {})
    two = Ledger.open(path)
    add(one)
    with pytest.raises(LedgerError, match="another process changed"):
        add(two)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-1]), "cut"),
        (lambda p: p.write_bytes(p.read_bytes() + b'{"x":1}\n'), "line 4: was changed"),
        (lambda p: p.rename(p.with_name("away")), "No such file"),
        (lambda p: (p.rename(p.with_name("old")), p.write_bytes(b"x")), "replaced"),
    ],
)
def test_holding_a_ledger_that_was_harmed_is_refused(path, harm, problem):
    ledger = Ledger.create(path, {})
    add(ledger)
    add(ledger)
    harm(path)
    with pytest.raises((LedgerError, OSError), match=problem), ledger.held():
        pytest.fail("it was held")


def test_a_line_that_another_process_died_in_is_cut_off(path):
    one = Ledger.create(path, {})
    add(one)
    two = Ledger.open(path)
    with path.open("ab") as file:
        file.write(b'{"at":"2026')
    with two.held():
        add(two, number=2)
    assert [e.round for e in Ledger.verify(path)] == [1, 2]


def append_many(path, name, count):
    ledger = Ledger.open(path)
    for number in range(count):
        with ledger.held():
            add(ledger, number=number, run=name)


def test_processes_that_append_at_once_make_one_chain(path):
    Ledger.create(path, {})
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(path, f"w{i}", 50)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    entries = Ledger.verify(path)
    for i in range(4):
        assert [e.round for e in entries if e.run == f"w{i}"] == list(range(50))
    assert len(entries) == 200


def create_once(path, queue):
    try:
        queue.put(Ledger.create(path, {"pid": os.getpid()}).head)
    except LedgerError:
        queue.put(None)


def test_of_processes_that_create_a_ledger_at_once_one_does(path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    makers = [context.Process(target=create_once, args=(path, queue)) for _ in range(8)]
    for maker in makers:
        maker.start()
    heads = {queue.get() for _ in makers}
    for maker in makers:
        maker.join()
    assert heads == {None, Ledger.open(path).head}


def test_verifying_asks_for_no_right_to_write(path, monkeypatch):
    add(Ledger.create(path, {}))
    asked, opened = [], os.open
    monkeypatch.setattr(os, "open", lambda p, flags, *more: asked.append(flags) or opened(p, flags))
    assert len(Ledger.verify(path)) == 1
    assert asked and not any(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) for flags in asked)


@pytest.mark.slow
def test_a_hundred_thousand_lines_open_within_seconds(path):
    """The benchmark says how quickly on a quiet machine; a busy one is given five times that."""
    with path.open("wb") as file:
        line, head = chain.header_line({"run_id": "x"})
        file.write(line)
        for number in range(100_000):
            record = {
                "at": "2026-01-01T00:00:00+00:00",
                "event": EVENT.to_json(),
                "evidence_digest": DIGEST,
                "index": number,
                "previous": head,
                "purpose": "training round",
                "round": number + 1,
            }
            line = seal(record)
            head = json.loads(line)["sha256"]
            file.write(line)
    started = time.process_time()
    ledger = Ledger.open(path)
    assert time.process_time() - started < 4
    assert (len(ledger), ledger.head) == (100_000, head)


def test_it_is_said_where_nothing_can_be_kept_beside_a_ledger(path, tmp_path, monkeypatch, caplog):
    """An older copy that is brought back is noticed by what is kept there alone."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "file"))
    ledger = Ledger.create(path, {"run_id": "x"})
    for _ in range(2):
        HighWaterMark(ledger).raise_to(ledger)
    assert caplog.text.count("will not be noticed") == 1
    assert str(tmp_path / "file") in caplog.text and "FEDLENS_HOME" in caplog.text
