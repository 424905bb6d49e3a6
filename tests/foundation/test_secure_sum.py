"""Secure sums: exact for those who remain, and nothing to see for a server that has no shares."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedlens.foundation.secure_sum import (
    Advert,
    Identity,
    KeyRoster,
    Reveal,
    SecureSumError,
    SumCollector,
    SumParty,
    SumTerms,
    bits_for,
    decoded,
    encoded,
    packed,
    unpacked,
)
from fedlens.foundation.secure_sum.adverts import agreement, view_of
from fedlens.foundation.secure_sum.words import add_mask
from harness.secure_adversary import Adversary, every_lie


def terms_of(parties=5, least=4, colluding=1, threshold=0, size=12, bits=40, **more) -> SumTerms:
    fields = {"session": os.urandom(16), "round": 3, "summed": bytes(32), **more}
    return SumTerms(
        parties=parties, threshold=threshold or least, least=least, colluding=colluding,
        size=size, bits=bits, **fields,
    )  # fmt: skip


class Sum:
    """A whole sum, whose steps tests take one by one and disturb."""

    def __init__(self, terms: SumTerms, values=None, roster=True) -> None:
        self.terms, self.collector = terms, SumCollector(terms)
        numbers = range(1, terms.parties + 1)
        self.identities = {i: Identity.new() for i in numbers}
        keys = frozenset(identity.public for identity in self.identities.values())
        self.roster = KeyRoster(keys) if roster else None
        self.parties = {i: SumParty.new(terms, i, self.identities[i]) for i in numbers}
        source = np.random.default_rng(terms.parties)
        top = 2 ** (terms.bits - 8)
        self.values = values or {i: source.integers(-top, top, terms.size) for i in numbers}
        self.sent: dict[int, np.ndarray] = {}

    def advertise(self, *gone: int) -> Sum:
        for index, party in self.parties.items():
            advert = party.advertise()
            if index not in gone:
                assert self.collector.take_advert(index, advert) == ""
        return self

    def share(self, *gone: int) -> Sum:
        for index in list(self.collector.adverts):
            if index not in gone:
                shares = self.parties[index].share(self.collector.adverts.values(), self.roster)
                assert self.collector.take_shares(index, shares) == ""
        return self

    def mask(self, *gone: int) -> Sum:
        for index in self.collector.members:
            if index not in gone:
                party = SumParty.restored(self.parties[index].kept(), self.identities[index])
                words = encoded(self.values[index], self.terms.bits)
                masked = party.masked(words, self.collector.shares_for(index))
                self.sent[index] = masked
                content = packed(masked, self.terms.bits)
                assert self.collector.take_masked(index, content) == ""
                self.parties[index] = party
        return self

    def agree(self, *gone: int) -> Sum:
        survivors = self.collector.survivors
        for index in survivors:
            if index not in gone:
                signature = self.parties[index].agree(survivors)
                assert self.collector.take_signature(index, signature) == ""
        return self

    def reveal(self, *gone: int) -> Sum:
        for index in self.collector.survivors:
            if index not in gone:
                reveal = self.parties[index].reveal(self.collector.signatures)
                assert self.collector.take_reveal(index, reveal) == ""
        return self

    def opened(self) -> np.ndarray:
        return decoded(self.collector.opened(), self.terms.bits)

    def expected(self) -> np.ndarray:
        return sum(self.values[index] for index in self.collector.survivors)


# Exact, for those who remain


@settings(max_examples=25, deadline=None)
@given(st.data())
@pytest.mark.law("secure sums: the sum is exact")
def test_the_sum_is_exact_whoever_drops_out_and_whenever(data):
    parties = data.draw(st.integers(2, 9))
    least = data.draw(st.integers(parties // 2 + 1, parties))
    threshold = data.draw(st.integers(parties // 2 + 1, least))
    terms = terms_of(parties, least, 0, threshold, bits=data.draw(st.sampled_from([24, 40, 64])))
    order = data.draw(st.permutations(range(1, parties + 1)))
    gone = order[: data.draw(st.integers(0, parties - least))]
    when = {index: data.draw(st.integers(0, 2)) for index in gone}
    late = order[len(gone) : len(gone) + data.draw(st.integers(0, parties - len(gone) - threshold))]
    run = Sum(terms)
    run.advertise(*(i for i in gone if when[i] == 0))
    run.share(*(i for i in gone if when[i] == 1)).mask(*(i for i in gone if when[i] == 2))
    run.agree().reveal(*late)
    assert run.collector.survivors == tuple(sorted(set(order) - set(gone)))
    np.testing.assert_array_equal(run.opened(), run.expected())


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(range(8, 65, 8)),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
)
def test_numbers_are_read_back_modulo_two_to_the_k(bits, numbers):
    values = np.array(numbers, dtype=np.int64)
    words = unpacked(packed(encoded(values, bits), bits), len(values), bits)
    half = 2 ** (bits - 1)
    wrapped = [(number + half) % (2 * half) - half for number in numbers]
    assert decoded(words, bits).tolist() == wrapped
    assert len(packed(words, bits)) == len(values) * bits // 8


def test_there_is_room_for_the_largest_sum_and_no_more_than_is_needed():
    for largest in (1, 127, 128, 2**31 - 1, 2**31, 2**55 - 1, 2**55, 2**63 - 1):
        bits = bits_for(largest)
        assert 2 ** (bits - 1) - 1 >= largest > (2 ** (bits - 9) - 1 if bits > 8 else 0)
    with pytest.raises(SecureSumError, match="at most 64"):
        bits_for(2**63)


def test_a_mask_is_the_stream_of_rfc_8439():
    """The key stream of ChaCha20, key and nonce zero: RFC 8439, appendix A.1, vector 1."""
    total = np.zeros(8, dtype=np.uint64)
    add_mask(total, bytes(32))
    known = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert total.astype("<u8").tobytes().hex() == known
    add_mask(total, bytes(32), subtract=True)
    assert not total.any()


def test_a_long_mask_does_not_repeat_from_one_block_to_the_next():
    total = np.zeros(3 * 2**17 + 5, dtype=np.uint64)
    add_mask(total, os.urandom(32))
    assert len(np.unique(total)) == len(total)


# What the server has without shares


@pytest.mark.law("secure sums: too few shares open nothing")
def test_what_a_party_sends_is_uniform_without_shares():
    terms = terms_of(3, 3, 0, size=40_000, bits=64)
    run = Sum(terms, {i: np.zeros(40_000, dtype=np.int64) for i in (1, 2, 3)})
    run.advertise().share().mask()
    for masked in run.sent.values():
        counts = np.bincount(masked.astype("<u8").view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6
        places = np.unpackbits(masked.astype("<u8").view(np.uint8)).reshape(-1, 64).sum(0)
        assert (abs(places.astype(int) - 20_000) < 6 * 100).all()
    pair = run.sent[1] + run.sent[2]
    counts = np.bincount(pair.astype("<u8").view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_equal_values_are_masked_differently_each_time():
    values = {i: np.arange(12) for i in range(1, 6)}
    sent = [Sum(terms_of(), values).advertise().share().mask().sent[1] for _ in range(2)]
    assert not np.intersect1d(sent[0] & np.uint64(2**40 - 1), sent[1] & np.uint64(2**40 - 1)).size


@pytest.mark.law("secure sums: too few shares open nothing")
def test_too_few_shares_open_nothing():
    run = Sum(terms_of()).advertise().share().mask(5).agree()
    run.reveal(4)
    with pytest.raises(SecureSumError, match="too few right shares"):
        run.opened()


# Hostile servers


@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_a_server_that_puts_its_own_keys_in_the_middle_is_found_out_by_the_roster():
    run = Sum(terms_of()).advertise()
    adverts = dict(run.collector.adverts)
    stranger = Identity.new()
    own = SumParty.new(run.terms, 2, stranger).advertise()
    with pytest.raises(SecureSumError, match="not on this node's roster"):
        run.parties[1].share({**adverts, 2: own}.values(), run.roster)


def test_without_a_roster_the_servers_keys_pass():
    """What docs/explanation/secure-aggregation.md says does not hold, does not."""
    run = Sum(terms_of(), roster=False).advertise()
    own = SumParty.new(run.terms, 2, Identity.new()).advertise()
    assert run.parties[1].share({**run.collector.adverts, 2: own}.values(), None)


@pytest.mark.parametrize("field", ["channel", "mask", "commitment", "index", "signature"])
def test_keys_that_were_changed_on_the_way_are_refused(field):
    run = Sum(terms_of()).advertise()
    advert = run.collector.adverts[2]
    changed = {"index": 5, "signature": advert.signature[::-1]}.get(field, os.urandom(32))
    spoiled = replace(advert, **{field: changed})
    others = {i: a for i, a in run.collector.adverts.items() if i not in (2, spoiled.index)}
    with pytest.raises(SecureSumError, match="not signed"):
        run.parties[1].share([*others.values(), spoiled], run.roster)


@pytest.mark.parametrize("change", [{"round": 4}, {"session": bytes(16)}, {"summed": b"x" * 32}])
def test_keys_of_another_sum_are_refused(change):
    run = Sum(terms_of()).advertise()
    other = replace(run.terms, **change)
    old = SumParty.new(other, 2, run.identities[2]).advertise()
    assert "another sum" in SumCollector(run.terms).take_advert(2, old)
    with pytest.raises(SecureSumError, match="another sum"):
        run.parties[1].share({**run.collector.adverts, 2: old}.values(), run.roster)


def test_one_node_cannot_stand_for_two():
    run = Sum(terms_of()).advertise()
    twice = SumParty.new(run.terms, 3, run.identities[2]).advertise()
    with pytest.raises(SecureSumError, match="twice"):
        run.parties[1].share({**run.collector.adverts, 3: twice}.values(), run.roster)
    assert "long-term key" in run.collector.take_advert(3, twice)


def test_own_keys_that_were_exchanged_are_noticed():
    run = Sum(terms_of()).advertise()
    again = SumParty.new(run.terms, 1, run.identities[1]).advertise()
    with pytest.raises(SecureSumError, match="own keys"):
        run.parties[1].share({**run.collector.adverts, 1: again}.values(), run.roster)


@pytest.mark.law("secure sums: a node is in a sum once")
def test_no_list_of_keys_is_accepted_from_two_seats_of_one_node():
    """Every list that a server and a colluding party can put together of three parties' keys.

    Node h was given seats 1 and 2; o is honest; c signs whatever keys it saw, for any seat.
    """
    terms = terms_of(parties=4, least=3, colluding=1)
    h, o, c = Identity.new(), Identity.new(), Identity.new()
    parties = {1: (SumParty.new(terms, 1, h), h), 2: (SumParty.new(terms, 2, h), h)}
    parties |= {3: (SumParty.new(terms, 3, o), o), 4: (SumParty.new(terms, 4, c), c)}
    seen = {index: party.advertise() for index, (party, _) in parties.items()}
    lent = [
        Advert.signed(terms, c, replace(advert, index=index, identity=c.public))
        for advert in seen.values()
        for index in parties
    ]
    moved = [replace(advert, index=index) for advert in seen.values() for index in parties]
    choices = {i: [None, *(a for a in {*lent, *moved} if a.index == i)] for i in parties}
    roster, accepted = KeyRoster(frozenset({h.public, o.public, c.public})), Counter()
    for chosen in itertools.product(*choices.values()):
        adverts = [advert for advert in chosen if advert is not None]
        takers = set()
        for index in (1, 2, 3):
            party, identity = parties[index]
            with suppress(SecureSumError):
                SumParty.restored(party.kept(), identity).share(adverts, roster)
                takers.add(index)
        assert not takers >= {1, 2}
        accepted.update(takers)
    assert all(accepted[index] for index in (1, 2, 3))  # what is honest among them is accepted


@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_no_lie_of_a_server_and_a_colluding_party_unmasks_anyone():
    adversary = Adversary()
    truth, *lies = every_lie()
    told = adversary.tell(truth)
    assert told.ended["revealed"] == 3 and told.agreed == 1 and not told.breached
    for lie in random.Random(5).sample(lies, 500):
        assert not adversary.tell(lie).breached, lie


def test_the_adversary_unmasks_who_takes_terms_that_protect_nothing(monkeypatch):
    """Without the check of the threshold, two lists of survivors are enough."""
    monkeypatch.setattr(SumTerms, "__post_init__", lambda terms: None)
    adversary = Adversary(threshold=2)
    assert any(adversary.tell(lie).unmasked for lie in random.Random(5).sample([*every_lie()], 500))


def test_a_key_of_low_order_is_left_out_by_the_server_and_refused_by_parties():
    run = Sum(terms_of()).advertise()
    honest = run.collector.adverts[2]
    bad = Advert.signed(run.terms, run.identities[2], replace(honest, channel=bytes(32)))
    assert "cannot be used" in SumCollector(run.terms).take_advert(2, bad)
    with pytest.raises(SecureSumError, match="cannot be used"):
        run.parties[1].share({**run.collector.adverts, 2: bad}.values(), run.roster)


@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_no_party_gives_up_both_secrets_of_another():
    run = Sum(terms_of()).advertise().share().mask(5).agree()
    reveal = run.parties[1].reveal(run.collector.signatures)
    assert set(reveal.seeds) == {1, 2, 3, 4} and set(reveal.keys) == {5}


def test_a_server_cannot_ask_for_other_survivors_than_were_agreed():
    """The attack that the agreement is for: one list of survivors for some, another for others."""
    run = Sum(terms_of()).advertise().share().mask()
    truth, lie = (1, 2, 3, 4, 5), (1, 2, 3, 4)
    signatures = {i: run.parties[i].agree(truth) for i in (1, 2, 3)}
    signatures[4] = run.parties[4].agree(lie)
    for party in (1, 4):
        with pytest.raises(SecureSumError, match="agreed to these survivors"):
            run.parties[party].reveal(signatures)


def test_survivors_are_signed_once_and_shares_given_once():
    run = Sum(terms_of()).advertise().share().mask().agree()
    with pytest.raises(SecureSumError, match="twice"):
        run.parties[1].agree((1, 2, 3, 4))
    run.parties[1].reveal(run.collector.signatures)
    with pytest.raises(SecureSumError, match="twice"):
        run.parties[1].reveal(run.collector.signatures)


def test_values_are_masked_once():
    run = Sum(terms_of()).advertise().share().mask()
    words = encoded(run.values[1], run.terms.bits)
    with pytest.raises(SecureSumError, match="twice or out of its order"):
        run.parties[1].masked(words, run.collector.shares_for(1))


def test_a_server_that_asks_parties_for_different_things_gets_no_agreement():
    """All but one are asked for what gives nothing, so that the total would be that one's."""
    run = Sum(terms_of()).advertise().share()
    for index in run.collector.members:
        words = encoded(run.values[index], run.terms.bits)
        asked = b"the model" if index == 1 else b"another"
        content = run.parties[index].masked(words, run.collector.shares_for(index), asked)
        run.collector.take_masked(index, packed(content, run.terms.bits))
    everyone = run.collector.survivors
    signatures = {index: run.parties[index].agree(everyone) for index in everyone}
    assert "did not sign" in run.collector.take_signature(1, signatures[1])
    with pytest.raises(SecureSumError, match="1 parties agreed"):
        run.parties[1].reveal(signatures)


@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_no_total_has_a_party_that_was_asked_for_something_else():
    """The others are enough to agree, and do not know what it was asked for."""
    run = Sum(terms_of()).advertise().share()
    run.collector._asked = b"the model"
    for index in run.collector.members:
        words = encoded(run.values[index], run.terms.bits)
        asked = b"another" if index == 1 else b"the model"
        content = run.parties[index].masked(words, run.collector.shares_for(index), asked)
        run.collector.take_masked(index, packed(content, run.terms.bits))
    everyone = run.collector.survivors
    for index in everyone[1:]:
        assert not run.collector.take_signature(index, run.parties[index].agree(everyone))
    for index in everyone[1:]:
        reveal = run.parties[index].reveal(run.collector.signatures)
        assert not run.collector.take_reveal(index, reveal)
    assert not (run.opened() == run.expected()).any()


@pytest.mark.parametrize(
    ("survivors", "why"),
    [((1, 2, 3), "at least 4"), ((2, 3, 4, 5), "not among"), ((1, 2, 3, 4, 4), "twice"),
     ((1, 2, 3, 4, 9), "not members")],
)  # fmt: skip
def test_survivors_that_cannot_be_are_not_signed(survivors, why):
    run = Sum(terms_of()).advertise().share().mask()
    with pytest.raises(SecureSumError, match=why):
        run.parties[1].agree(survivors)


def test_an_agreement_of_another_sum_opens_nothing():
    run = Sum(terms_of()).advertise().share().mask().agree()
    other = replace(run.terms, round=4)
    view, everyone = view_of(run.collector.adverts.values()), range(1, 6)
    statement = agreement(other, view, b"", everyone, everyone)
    signatures = {i: identity.sign(statement) for i, identity in run.identities.items()}
    with pytest.raises(SecureSumError, match="0 parties agreed"):
        run.parties[1].reveal(signatures)


def test_a_server_needs_as_many_members_as_the_terms_say():
    run = Sum(terms_of()).advertise().share()
    few = dict(list(run.collector.shares_for(1).items())[:2])
    with pytest.raises(SecureSumError, match="3 members"):
        run.parties[1].masked(encoded(run.values[1], 40), few)


# Hostile parties


def lying(run: Sum, index: int) -> Reveal:
    reveal = run.parties[index].reveal(run.collector.signatures)
    spoil = {party: share + 1 for party, share in reveal.seeds.items()}
    return Reveal(spoil, {party: share + 1 for party, share in reveal.keys.items()})


def test_wrong_shares_of_one_party_are_got_over_where_others_are_enough():
    run = Sum(terms_of(7, 6, 1, 5)).advertise().share().mask(7).agree().reveal(3)
    run.collector.take_reveal(3, lying(run, 3))
    np.testing.assert_array_equal(run.opened(), run.expected())


@pytest.mark.law("secure sums: a bad round fails and is charged")
def test_wrong_shares_never_give_a_wrong_sum():
    run = Sum(terms_of()).advertise().share().mask(5).agree().reveal(3)
    run.collector.take_reveal(3, lying(run, 3))
    with pytest.raises(SecureSumError, match="too few right shares"):
        run.opened()


def test_a_party_that_seals_nonsense_stops_no_other():
    run = Sum(terms_of(7, 6, 1, 5)).advertise().share()
    run.collector._sealed[3] = {other: os.urandom(82) for other in run.collector._sealed[3]}
    run.mask(7).agree().reveal()
    with pytest.raises(SecureSumError, match="party 3"):  # its own seed is lost, and so the round
        run.opened()


def test_shares_that_were_relayed_to_another_are_not_opened():
    run = Sum(terms_of(7, 6, 1, 5)).advertise().share()
    sealed = run.collector._sealed
    sealed[1][2], sealed[1][3] = sealed[1][3], sealed[1][2]
    run.mask().agree().reveal()
    for index in (2, 3):
        assert 1 not in run.collector._reveals[index].seeds
    np.testing.assert_array_equal(run.opened(), run.expected())  # five shares are left


@pytest.mark.parametrize("spoil", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b""])
def test_a_masked_sum_of_another_length_is_left_out(spoil):
    run = Sum(terms_of()).advertise().share().mask(2)
    party = run.parties[2]
    content = packed(party.masked(encoded(run.values[2], 40), run.collector.shares_for(2)), 40)
    assert "length" in run.collector.take_masked(2, spoil(content))
    np.testing.assert_array_equal(run.agree().reveal().opened(), run.expected())


def test_what_comes_twice_or_too_late_is_left_out():
    run = Sum(terms_of()).advertise().share().mask(5)
    content = bytes(12 * 5)
    assert run.collector.take_masked(1, content)
    run.agree()
    assert run.collector.take_masked(5, content)
    np.testing.assert_array_equal(run.reveal().opened(), run.expected())


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300))
def test_whatever_bytes_come_as_keys_are_read_or_refused(content):
    try:
        advert = Advert.from_bytes(content)
    except SecureSumError:
        return
    assert advert.fault(terms_of())


@pytest.mark.parametrize(
    "change",
    [{"threshold": 3}, {"threshold": 5}, {"least": 6}, {"colluding": 4}, {"bits": 12}, {"size": 0},
     {"parties": 1}, {"session": b""}, {"summed": b""}, {"colluding": 3}],
)  # fmt: skip
def test_terms_that_protect_nothing_are_refused(change):
    with pytest.raises(SecureSumError):
        replace(terms_of(), **change)
