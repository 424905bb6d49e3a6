import json
import stat

import numpy as np
import pytest

from fedlens.accountant.bayesian.noised_norms import noised_norms
from fedlens.accountant.bayesian.norms import NormHistogram
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.evidence import EvidenceFile, Sealed
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.noise.bits import FixedBits

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)


def histogram(seed=0):
    source = np.random.default_rng(seed)
    counts = NormHistogram.from_norms(source.uniform(0, 0.3, 100), 0.35).counts
    return noised_norms(counts, clipping_norm=0.35, noise=14.0, source=FixedBits(seed))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "evidence.jsonl"


@pytest.fixture
def entries(tmp_path, path):
    ledger, evidence = Ledger.create(tmp_path / "ledger.jsonl", {}), EvidenceFile(path)
    for number in range(3):
        sealed = evidence.seal(histogram(number))
        entry = ledger.append(EVENT, round=number, purpose="", evidence_digest=sealed.digest)
        evidence.append(entry.index, sealed)
    return ledger.entries


def test_evidence_comes_back_for_the_entry_that_committed_to_it(entries, path):
    evidence = EvidenceFile(path)
    assert [evidence.matching(entry) for entry in entries] == [histogram(n) for n in range(3)]
    assert evidence.problems == 0


def test_only_the_owner_may_read_it(entries, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    EvidenceFile(path).append(9, EvidenceFile.seal(histogram()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_changed_histogram_or_salt_no_longer_fits(entries, path):
    lines = path.read_text().splitlines()
    record = json.loads(lines[0])
    record["histogram"]["counts"][0] += 1
    other = json.loads(lines[1])
    other["salt"] = "00" * 32
    path.write_text("\n".join([json.dumps(record), json.dumps(other), lines[2]]) + "\n")
    evidence = EvidenceFile(path)
    assert [evidence.matching(e) for e in entries] == [None, None, histogram(2)]


def test_evidence_of_another_entry_does_not_fit(entries, path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0]["index"], records[1]["index"] = 1, 0
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    evidence = EvidenceFile(path)
    assert [evidence.matching(e) for e in entries] == [None, None, histogram(2)]


def test_a_crash_at_any_byte_costs_the_last_line_alone(entries, path):
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for cut in range(last, len(data), 7):
        path.write_bytes(data[:cut])
        evidence = EvidenceFile(path)
        assert [evidence.matching(e) is not None for e in entries] == [True, True, False]
        assert evidence.problems == (cut > last)
        sealed = evidence.seal(histogram(9))
        evidence.append(2, sealed)
        assert EvidenceFile(path).problems == 0


def test_unreadable_lines_are_left_out_and_counted(entries, path):
    with path.open("ab") as file:
        file.write(b"garbage\n{}\n[]\n3\n" + b'{"index":0,"salt":"zz","histogram":{}}\n')
    evidence = EvidenceFile(path)
    assert evidence.problems == 5
    assert evidence.matching(entries[2]) == histogram(2)


def test_equal_histograms_have_unlike_commitments(path):
    evidence = EvidenceFile(path)
    first, second = evidence.seal(histogram()), evidence.seal(histogram())
    assert first.digest != second.digest
    assert Sealed(first.histogram, first.salt).digest == first.digest
    assert len(first.salt) == 32


@pytest.mark.parametrize("index", ["Infinity", "1e999", "null", '"x"', "[0]"])
def test_a_line_with_an_odd_index_is_counted_and_left_out(tmp_path, index):
    path = tmp_path / "evidence.jsonl"
    path.write_text(f'{{"index": {index}, "salt": "00", "histogram": {{}}}}\n')
    assert EvidenceFile(path).problems == 1
