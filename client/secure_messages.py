"""What travels for a secure sum: five exchanges a round, each relayed by the server.

=====================  ==========================================  ================================
to the node            it brings                                   the node answers
=====================  ==========================================  ================================
`KEYS`                 the sum's terms, the node's number          its keys of this sum, signed
`SHARES`               all parties' keys                           shares of its secrets, each
                                                                   sealed for one other party
`MASKED`               a `TrainRequest`, shares sealed for it      its masked sum
`AGREE`                who survived                                a signature of that
`REVEAL`               the survivors' signatures                   one share of each party
=====================  ==========================================  ================================

Both sides read the layout of the sum (`layout_of`) from the same public settings, of which every
key and signature carries the hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ValidationError

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, split_noise
from fedlens.accountant.bayesian.norms import NORM_BINS
from fedlens.accountant.noise.shares import SumLayout, noised_layout, plain_layout
from fedlens.client.messages import DONE, STRICT, Mechanism, Natural, ReplyError
from fedlens.foundation.secure_sum import Advert, Reveal, SumTerms
from fedlens.foundation.secure_sum.field import SHARE_BYTES

KEYS = "query.secure_keys"
SHARES = "query.secure_shares"
MASKED = "train.secure"
AGREE = "query.secure_agree"
REVEAL = "query.secure_reveal"
_RECORD, _ARRAYS = "secure", "masked"


class SumSettings(BaseModel):
    """What a secure sum is of, besides the round's mechanism."""

    model_config = STRICT

    noise: Literal["server", "distributed"]
    """Who adds the noise: the server to the sum that it opens, or each node its share."""
    norms_share: float
    """Share of 1/z² that the histogram of norms has."""
    users: Natural
    """N: most users that contribute."""
    kind: str
    """Of the task."""

    def summed(self, mechanism: Mechanism) -> bytes:
        """SHA-256 of all that decides what the numbers mean."""
        fields = {"settings": self.model_dump(), "mechanism": mechanism.model_dump()}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()


def layout_of(
    mechanism: Mechanism, settings: SumSettings, size: int, *, parties: int, honest: int
) -> SumLayout:
    """The numbers that a node sends for updates of length ``size``.

    Raises:
        WrongUse: noise that cannot be shared so.
    """
    clip, users = mechanism.clipping_norm, settings.users
    if settings.noise == "server":
        return plain_layout(size, clip, users, NORM_BINS)
    split = split_noise(mechanism.noise_multiplier, settings.norms_share)
    bins = PUBLIC_BINS if math.isfinite(split.norms) else 0
    return noised_layout(
        size,
        clip,
        users,
        bins,
        multipliers=(split.update, split.norms if bins else 0.0),
        honest=honest,
        parties=parties,
    )


# Terms

_TERMS = ("session", "round", "parties", "threshold", "least", "colluding", "size", "bits")


def keys_request(terms: SumTerms, index: int) -> RecordDict:
    """Asks a node for its keys as party ``index``."""
    fields = {name: getattr(terms, name) for name in (*_TERMS, "summed")}
    return _record({**fields, "index": index})


def read_keys_request(record: RecordDict) -> tuple[SumTerms, int]:
    """What `keys_request` wrote.

    Raises:
        ReplyError: it is something else.
        SecureSumError: terms that protect nothing.
    """
    fields = _fields(record)
    try:
        index = _whole(fields["index"])
        numbers = {name: _whole(fields[name]) for name in _TERMS[1:]}
        session, summed = _bytes(fields["session"]), _bytes(fields["summed"])
    except (KeyError, TypeError):
        raise ReplyError("terms of a secure sum lack a field") from None
    return SumTerms(session=session, summed=summed, **numbers), index


# Adverts and sealed shares


def advert_reply(advert: Advert) -> RecordDict:
    """A node's keys."""
    return _record({"advert": advert.to_bytes()}, replied=True)


def read_advert(record: RecordDict) -> Advert:
    """What `advert_reply` wrote.

    Raises:
        ReplyError, SecureSumError: it is something else.
    """
    return Advert.from_bytes(_bytes(_field(record, "advert", replied=True)))


def shares_request(session: bytes, adverts: Sequence[Advert]) -> RecordDict:
    """Gives a node all parties' keys and asks for shares."""
    return _record({"session": session, "adverts": [a.to_bytes() for a in adverts]})


def read_adverts(record: RecordDict) -> list[Advert]:
    """What `shares_request` wrote.

    Raises:
        ReplyError, SecureSumError: it is something else.
    """
    return [Advert.from_bytes(_bytes(content)) for content in _list(record, "adverts")]


def shares_reply(sealed: Mapping[int, bytes]) -> RecordDict:
    """A node's shares for the others."""
    return _record(_by_party("sealed", sealed), replied=True)


def add_sealed(record: RecordDict, session: bytes, sealed: Mapping[int, bytes]) -> RecordDict:
    """A request for training with what others sealed for the node."""
    record[_RECORD] = ConfigRecord({"session": session, **_by_party("sealed", sealed)})
    return record


def add_settings(record: RecordDict, settings: SumSettings) -> RecordDict:
    """The same with the sum's settings."""
    fields = {f"settings.{name}": value for name, value in settings.model_dump().items()}
    record.config_records[_RECORD].update(fields)
    return record


def read_settings(record: RecordDict) -> SumSettings:
    """What `add_settings` wrote.

    Raises:
        ReplyError: it is something else.
    """
    prefix, fields = "settings.", _fields(record)
    found = {k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}
    try:
        return SumSettings.model_validate(found)
    except ValidationError:
        raise ReplyError("settings of a secure sum lack a field or have another kind") from None


def read_sealed(record: RecordDict, *, replied: bool = False) -> dict[int, bytes]:
    """What `shares_reply` or `add_sealed` wrote.

    Raises:
        ReplyError: it is something else.
    """
    return _parties(record, "sealed", replied=replied)


# Masked sums


def masked_reply(content: bytes) -> RecordDict:
    """A node's masked sum."""
    record = _record({}, replied=True)
    record[_ARRAYS] = ArrayRecord({"sum": Array(np.frombuffer(content, dtype=np.uint8))})
    return record


def read_masked(record: RecordDict) -> bytes:
    """What `masked_reply` wrote.

    Raises:
        ReplyError: it is something else.
    """
    _fields(record, replied=True)
    try:
        found = record.array_records[_ARRAYS]["sum"].numpy()
    except Exception:  # a peer's bytes: whatever they break, the reply is refused
        raise ReplyError("a masked sum cannot be read") from None
    if not isinstance(found, np.ndarray) or found.dtype != np.uint8 or found.ndim != 1:
        raise ReplyError("a masked sum is something else than bytes")
    return found.tobytes()


# Agreement and reveal


def agree_request(session: bytes, survivors: Sequence[int]) -> RecordDict:
    """Tells a node whose sums there are."""
    return _record({"session": session, "survivors": list(survivors)})


def read_survivors(record: RecordDict) -> list[int]:
    """What `agree_request` wrote.

    Raises:
        ReplyError: it is something else.
    """
    return [_whole(number) for number in _list(record, "survivors")]


def agree_reply(signature: bytes) -> RecordDict:
    """A node's signature of the survivors."""
    return _record({"signature": signature}, replied=True)


def read_signature(record: RecordDict) -> bytes:
    """What `agree_reply` wrote.

    Raises:
        ReplyError: it is something else.
    """
    return _bytes(_field(record, "signature", replied=True))


def reveal_request(session: bytes, signatures: Mapping[int, bytes]) -> RecordDict:
    """Shows a node that the others agreed."""
    return _record({"session": session, **_by_party("signature", signatures)})


def read_signatures(record: RecordDict) -> dict[int, bytes]:
    """What `reveal_request` wrote.

    Raises:
        ReplyError: it is something else.
    """
    return _parties(record, "signature")


def reveal_reply(reveal: Reveal) -> RecordDict:
    """A node's shares, one of each party."""
    tables = {"seed": reveal.seeds, "key": reveal.keys}
    fields: dict[str, Any] = {}
    for name, shares in tables.items():
        contents = {p: share.to_bytes(SHARE_BYTES, "big") for p, share in shares.items()}
        fields |= _by_party(name, contents)
    return _record(fields, replied=True)


def read_reveal(record: RecordDict) -> Reveal:
    """What `reveal_reply` wrote.

    Raises:
        ReplyError: it is something else.
    """
    seeds, keys = (_parties(record, name, replied=True) for name in ("seed", "key"))
    if any(len(content) != SHARE_BYTES for content in (*seeds.values(), *keys.values())):
        raise ReplyError("a share has another length than it must")
    return Reveal(*({p: int.from_bytes(c, "big") for p, c in t.items()} for t in (seeds, keys)))


def session_of(record: RecordDict) -> bytes:
    """Which sum a message belongs to.

    Raises:
        ReplyError: it does not say.
    """
    return _bytes(_field(record, "session"))


# Fields


def _record(fields: Mapping[str, Any], *, replied: bool = False) -> RecordDict:
    record = RecordDict({_RECORD: ConfigRecord(dict(fields))})
    if replied:
        record["config"] = ConfigRecord({"status": DONE})
    return record


def _fields(record: RecordDict, *, replied: bool = False) -> ConfigRecord:
    status = record.config_records.get("config")
    if replied and (status is None or status.get("status") != DONE):
        raise ReplyError("the node reported a failure")
    found = record.config_records.get(_RECORD)
    if found is None:
        raise ReplyError("a message of a secure sum lacks its record")
    return found


def _field(record: RecordDict, name: str, *, replied: bool = False) -> object:
    fields = _fields(record, replied=replied)
    if name not in fields:
        raise ReplyError(f"a message of a secure sum lacks its {name}")
    return fields[name]


def _list(record: RecordDict, name: str, *, replied: bool = False) -> list[Any]:
    found = _field(record, name, replied=replied)
    if not isinstance(found, list):
        raise ReplyError(f"{name} of a secure sum is no list")
    return found


def _by_party(name: str, contents: Mapping[int, bytes]) -> dict[str, Any]:
    return {f"{name}.of": list(contents), name: list(contents.values())}


def _parties(record: RecordDict, name: str, *, replied: bool = False) -> dict[int, bytes]:
    numbers = [_whole(n) for n in _list(record, f"{name}.of", replied=replied)]
    contents = [_bytes(c) for c in _list(record, name, replied=replied)]
    if len(numbers) != len(contents) or len(set(numbers)) != len(numbers):
        raise ReplyError(f"{name} of a secure sum: parties and contents do not fit")
    return dict(zip(numbers, contents, strict=True))


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise ReplyError("a number of a secure sum is none, or out of its range")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ReplyError("a field of a secure sum holds something else than bytes")
    return value
