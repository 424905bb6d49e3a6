import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.ledger import Ledger, LedgerError

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)
HEADER = {"run_id": "abc", "users": 1000, "noise_source": "os-entropy"}
DIGEST = "ab" * 32


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """Syncing is slow, and seen only by a machine that loses power; two tests watch for it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def fill(path, count, purpose="training round"):
    ledger = Ledger.create(path, HEADER)
    for number in range(1, count + 1):
        ledger.append(EVENT, round=number, purpose=purpose, evidence_digest=None)
    return ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def ledger(path):
    return fill(path, 5)


def rewrite(path, change):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))


def fault(path, **keywords):
    with pytest.raises(LedgerError) as caught:
        Ledger.verify(path, **keywords)
    assert f"line {caught.value.line}:" in str(caught.value)
    return caught.value.line, caught.value.problem


def test_what_was_appended_is_there_when_opened_again(path):
    ledger = fill(path, 2)
    other = replace(EVENT, noise_multiplier=0.0, count=7, released='Ünïcode ✓ {"}')
    entry = ledger.append(other, round=9, purpose="embedding", evidence_digest=DIGEST)
    again = Ledger.open(path)
    assert (again.entries, again.head, again.header) == (ledger.entries, entry.hash, HEADER)
    assert again.entries[2] == entry
    assert (entry.index, entry.round, entry.event, entry.purpose) == (2, 9, other, "embedding")
    assert entry.evidence_digest == DIGEST
    assert entry.previous == again.entries[1].hash
    assert (again.recovered, len(again)) == (0, 3)
    assert Ledger.verify(path, ledger.head, 3) == again.entries


def test_every_line_is_canonical_and_hashes_itself_and_the_line_before(ledger, path):
    previous = None
    for line in path.read_text().splitlines():
        record = json.loads(line)
        assert line == json.dumps(record, sort_keys=True, separators=(",", ":"))
        digest = record.pop("sha256")
        body = json.dumps(record, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(body.encode()).hexdigest() == digest
        if previous:
            assert record["previous"] == previous
        previous = digest
    assert previous == ledger.head


@pytest.mark.law("4: ledger and store hold what is listed")
def test_it_holds_nothing_but_the_mechanism(ledger, path):
    for line in path.read_text().splitlines()[1:]:
        assert set(json.loads(line)) == {
            "at", "event", "evidence_digest", "index", "previous", "purpose", "round", "sha256"
        }  # fmt: skip


@pytest.mark.law("crashes: a killed run goes on")
def test_a_crash_at_any_byte_of_an_append_leaves_a_ledger_that_opens(ledger, path):
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for cut in range(last, len(data)):
        path.write_bytes(data[:cut])
        opened = Ledger.open(path)
        assert len(opened) == 4
        assert opened.recovered == cut - last
        entry = opened.append(EVENT, round=5, purpose="again", evidence_digest=None)
        assert Ledger.verify(path, entry.hash, 5)[-1] == entry


def test_verifying_reports_a_torn_line_and_leaves_it(ledger, path):
    torn = path.read_bytes()[:-10]
    path.write_bytes(torn)
    assert fault(path) == (6, Match("crash"))
    assert path.read_bytes() == torn


class Match(str):
    """Equal to any text that contains it."""

    def __eq__(self, other):
        return re.search(str(self), other) is not None

    __hash__ = str.__hash__


def test_a_killed_writer_loses_nothing_that_it_was_told_was_written(path):
    fill(path, 0)
    script = (
        "import sys\n"
        "from fedlens.accountant.ledger.ledger import Ledger\n"
        "from fedlens.accountant.events import SubsampledGaussian as S\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        "event = S('user', 'poisson', 'add-remove', .1, 2., .35)\n"
        "for n in range(10**6):\n"
        "    entry = ledger.append(event, round=n, purpose='', evidence_digest=None)\n"
        "    print(entry.hash, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    told = [writer.stdout.readline().strip() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    told += writer.stdout.read().split("\n")[:-1]
    writer.wait()
    kept = [entry.hash for entry in Ledger.open(path).entries]
    assert kept[: len(told)] == told
    assert len(kept) <= len(told) + 1


@pytest.mark.parametrize("line", [0, 2, 5])
@pytest.mark.law("2: tampering shows")
def test_every_changed_character_is_found_and_its_line_named(ledger, path, line):
    lines = path.read_bytes().splitlines(keepends=True)
    for place in range(0, len(lines[line]) - 1):
        for flip in (0x01, 0x20):
            changed = bytearray(lines[line])
            changed[place] ^= flip
            path.write_bytes(b"".join([*lines[:line], bytes(changed), *lines[line + 1 :]]))
            assert fault(path)[0] in ((line + 1, line + 2) if changed[place] == 10 else (line + 1,))


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (lambda x: [*x[:2], x[2].replace(b"2.0", b"9.0"), *x[3:]], 3, "was changed"),
        (lambda x: [*x[:2], *x[3:]], 3, "a line before it is missing"),
        (lambda x: [*x[:2], x[2], *x[2:]], 4, "repeated or out of order"),
        (lambda x: [*x[:2], x[3], x[2], *x[4:]], 3, "a line before it is missing"),
        (lambda x: [*x[:3], b"garbage\n", *x[3:]], 4, "not JSON"),
        (lambda x: [*x[:3], b"\n", *x[3:]], 4, "not JSON"),
        (lambda x: [*x[:3], b"[1]\n", *x[3:]], 4, "was changed"),
        (lambda x: [*x[:3], b"\xff\xfe\n", *x[3:]], 4, "not JSON"),
        (lambda x: [*x[:3], b"[" * 100_000 + b"\n", *x[3:]], 4, "not JSON"),
        (lambda x: x[1:], 1, "not the header"),
        (lambda x: [x[0], x[0], *x[1:]], 2, "wrong fields"),
        (lambda x: [], 1, "no header"),
        (lambda x: [b"{}\n", *x[1:]], 1, "was changed"),
    ],
)
def test_tampering_is_named(ledger, path, change, line, problem):
    rewrite(path, change)
    assert fault(path) == (line, Match(problem))
    with pytest.raises(LedgerError, match=f"line {line}"):
        Ledger.open(path)


def test_a_line_that_was_hashed_anew_breaks_the_chain(ledger, path):
    def forge(lines):
        record = json.loads(lines[2])
        record["event"]["noise_multiplier"] = 50.0
        del record["sha256"]
        body = json.dumps(record, sort_keys=True, separators=(",", ":"))
        record["sha256"] = hashlib.sha256(body.encode()).hexdigest()
        forged = json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n"
        return [*lines[:2], forged.encode(), *lines[3:]]

    rewrite(path, forge)
    assert fault(path) == (4, Match("does not continue"))


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("at", None, "at"),
        ("index", "0", "index"),
        ("index", False, "index"),
        ("previous", None, "previous"),
        ("round", -1, "round"),
        ("round", True, "round"),
        ("purpose", 3, "purpose"),
        ("evidence_digest", "xyz", "evidence_digest"),
        ("event", {"mechanism": "laplace"}, "event"),
        ("event", [], "event"),
        ("norms", [1, 2], "wrong fields"),
    ],
)
def test_a_well_formed_chain_with_a_foreign_field_is_refused(path, key, value, problem):
    """Whoever can hash can write lines; what they hold is checked all the same."""
    fill(path, 1)

    def forge(lines):
        record = {**json.loads(lines[1]), key: value}
        del record["sha256"]
        body = json.dumps(record, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(body.encode()).hexdigest()
        return [lines[0], f'{body[:-1]},"sha256":"{digest}"}}\n'.encode()]

    rewrite(path, forge)
    assert fault(path) == (2, Match(problem))


def test_truncation_shows_against_what_a_checkpoint_kept(ledger, path):
    head, middle = ledger.head, ledger.entries[2].hash
    rewrite(path, lambda lines: lines[:4])
    Ledger.verify(path)
    Ledger.verify(path, middle, 3)
    assert fault(path, expected_entries=5) == (5, Match("5 entries were expected, 3 are there"))
    assert fault(path, expected_head=head) == (4, Match("cut off"))
    assert fault(path, expected_head=head, expected_entries=3) == (4, Match("rewritten"))


def test_a_ledger_may_have_grown_since_its_checkpoint(ledger, path):
    Ledger.verify(path, ledger.entries[1].hash, 2)
    Ledger.verify(path, ledger.entries[1].hash)
    Ledger.verify(path, ledger.entries[0].previous, 0)
    assert fault(path, expected_head=DIGEST) == (6, Match("cut off"))


def test_a_replaced_ledger_shows_against_what_a_checkpoint_kept(ledger, path):
    path.unlink()
    fill(path, 5, purpose="another")
    assert fault(path, expected_head=ledger.head, expected_entries=5) == (6, Match("rewritten"))


def test_an_existing_ledger_is_never_overwritten(ledger, path):
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, HEADER)
    assert path.read_bytes() == before


def test_creation_leaves_no_other_file(ledger, path):
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_two_writers_cannot_share_a_ledger(ledger, path):
    other = Ledger.open(path)
    ledger.append(EVENT, round=6, purpose="", evidence_digest=None)
    with pytest.raises(LedgerError, match="another process changed"):
        other.append(EVENT, round=6, purpose="", evidence_digest=None)
    assert len(Ledger.verify(path)) == 6


def test_a_full_disk_leaves_the_ledger_as_it_was(ledger, path, monkeypatch):
    before, write = path.read_bytes(), os.write

    def half(descriptor, data):
        if len(data) < 200:
            raise OSError(errno.ENOSPC, "no space left")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(LedgerError, match="no space left"):
        ledger.append(EVENT, round=6, purpose="", evidence_digest=None)
    assert path.read_bytes() == before
    monkeypatch.undo()
    ledger.append(EVENT, round=6, purpose="", evidence_digest=None)
    assert len(Ledger.verify(path)) == 6


def test_an_append_that_is_refused_writes_nothing(ledger, path):
    before = path.read_bytes()
    for keywords in (
        {"round": -1, "purpose": "", "evidence_digest": None},
        {"round": 1, "purpose": None, "evidence_digest": None},
        {"round": 1, "purpose": "", "evidence_digest": "short"},
        {"round": 1, "purpose": {1, 2}, "evidence_digest": None},
    ):
        with pytest.raises(LedgerError):
            ledger.append(EVENT, **keywords)
    assert path.read_bytes() == before


def test_a_header_that_is_not_json_is_refused_and_nothing_is_made(path):
    for header in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(LedgerError, match="not JSON"):
            Ledger.create(path, header)
    assert not list(path.parent.iterdir())


@pytest.mark.law("2: the ledger line is on disk first")
def test_an_append_is_on_disk_before_it_returns(ledger, path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path.read_bytes()))
    ledger.append(EVENT, round=6, purpose="", evidence_digest=None)
    assert synced == [path.read_bytes()]


def test_creating_syncs_the_file_and_its_folder(path, monkeypatch):
    synced = []

    def watch(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", watch)
    Ledger.create(path, HEADER)
    assert synced[-1] == path.parent
    assert len(synced) == 2


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(max_size=40))
def test_any_text_survives(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    ledger = Ledger.create(path, {"name": text})
    ledger.append(EVENT, round=0, purpose=text, evidence_digest=None)
    again = Ledger.open(path)
    assert (again.header, again.entries[0].purpose) == ({"name": text}, text)


def test_appending_and_opening_are_quick(path):
    ledger = fill(path, 20)
    started = time.process_time()
    for number in range(300):
        ledger.append(EVENT, round=number, purpose="training round", evidence_digest=DIGEST)
    assert (time.process_time() - started) / 300 < 0.004  # a quarter of a ms on a quiet machine
    started = time.process_time()
    Ledger.open(path)
    assert (time.process_time() - started) / 320 < 5e-5  # 100,000 lines in 5 s on a loaded machine
