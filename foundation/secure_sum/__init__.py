"""A sum of integer vectors of which a server learns the total and no part.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017,
in its form against active servers, with long-term keys as the public-key infrastructure: each
party adds a mask of its own and one for every pair; pair masks cancel in the sum, own masks are
given up once the survivors are agreed, and for a party that dropped out the others give up its
key for pairs instead. From the bottom up: a field and Shamir's shares (`field`), numbers modulo
2^k (`words`), long-term keys (`identities`), what a sum's parties agree on (`terms`, `adverts`),
keys of pairs (`pairs`), a party (`party`) and the server's side (`collector`).
"""

from fedlens.foundation.secure_sum.adverts import Advert
from fedlens.foundation.secure_sum.collector import SumCollector
from fedlens.foundation.secure_sum.errors import SecureSumError
from fedlens.foundation.secure_sum.identities import Identity, KeyRoster
from fedlens.foundation.secure_sum.party import Reveal, SumParty
from fedlens.foundation.secure_sum.terms import SumTerms
from fedlens.foundation.secure_sum.words import bits_for, decoded, encoded, packed, unpacked

__all__ = [
    "Advert",
    "Identity",
    "KeyRoster",
    "Reveal",
    "SecureSumError",
    "SumCollector",
    "SumParty",
    "SumTerms",
    "bits_for",
    "decoded",
    "encoded",
    "packed",
    "unpacked",
]
