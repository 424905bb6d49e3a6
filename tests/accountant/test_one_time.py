"""One-time signatures of norms that come after their entry."""

from __future__ import annotations

import pytest

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, NoisedNorms
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.evidence import EvidenceFile, SignedLater
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.one_time import SIGNATURE_BYTES, OneTimeKey, signer_of

EVENT = SubsampledGaussian("user", "none", "add-remove", 1.0, 2.0, 0.5)


def norms(first: float = 1.0) -> NoisedNorms:
    return NoisedNorms(0.5, 14.0, (first, *(0.5 * i for i in range(1, PUBLIC_BINS))))


def test_what_was_signed_leads_back_to_the_key_and_nothing_else_does():
    key = OneTimeKey()
    signature = key.sign(b"a message")
    assert len(signature) == SIGNATURE_BYTES
    assert signer_of(b"a message", signature) == key.public
    assert signer_of(b"b message", signature) != key.public
    for place in range(0, SIGNATURE_BYTES, 97):
        changed = bytearray(signature)
        changed[place] ^= 1
        assert signer_of(b"a message", bytes(changed)) != key.public
    assert signer_of(b"a message", signature[:-1]) == ""


def test_a_chain_walked_on_forges_nothing_for_the_checksum_runs_the_other_way():
    key = OneTimeKey()
    signature = key.sign(b"0")
    found = [n for n in range(2000) if signer_of(str(n).encode(), signature) == key.public]
    assert found == [0]


def test_a_key_signs_once():
    key = OneTimeKey()
    key.sign(b"one")
    with pytest.raises(RuntimeError, match="once"):
        key.sign(b"two")


def test_two_keys_are_different():
    assert OneTimeKey().public != OneTimeKey().public


def test_evidence_that_came_later_is_read_back_and_none_other_fits(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.jsonl", {"run_id": "r"})
    key = OneTimeKey()
    entry = ledger.append(EVENT, round=1, purpose="training", evidence_digest=key.public)
    file = EvidenceFile(tmp_path / "evidence.jsonl")
    assert file.matching(entry) is None
    file.append(entry.index, SignedLater(norms(2.0), bytes(SIGNATURE_BYTES)))
    assert file.matching(entry) is None
    file.append(entry.index, SignedLater.by(key, norms()))
    for again in (file, EvidenceFile(tmp_path / "evidence.jsonl")):
        assert again.matching(entry) == norms()
    assert EvidenceFile(tmp_path / "evidence.jsonl").problems == 0
