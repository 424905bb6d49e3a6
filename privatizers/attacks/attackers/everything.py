"""Attackers who have the filter: one reads its noisy code, one decodes a release and reads that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fedlens.privatizers.attacks.attackers.decoding import CodeDecoder, drawn
from fedlens.privatizers.attacks.attackers.protocol import (
    WEIGHTS,
    AttackError,
    FittedAttacker,
    Knowledge,
)
from fedlens.privatizers.attacks.attackers.vectors import VectorReader
from fedlens.privatizers.private_data import PrivateData

CALIBRATION = 1000  # Records whose decoding errors are measured
CHUNK = 1000


def code_attacker() -> VectorReader:
    """Reads what the filter's ``channel`` gives; `fit` takes codes as records."""
    return VectorReader()


@dataclass(frozen=True, eq=False)
class DecodeFitted:
    """A decoder, and a reader of codes with the decoder's errors."""

    decoder: CodeDecoder
    reader: FittedAttacker

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`."""
        return self.reader.log_probabilities(self.decoder.decode(records), side)


@dataclass(frozen=True, eq=False)
class DecodeAttacker:
    """Brings a release back to its code, and reads that.

    Its reader learns from codes that the attacker makes of raw records, with the decoder's errors,
    measured on other records, added: as many as it likes, where decoding each would take hours.
    """

    knows: Knowledge = WEIGHTS
    reader: VectorReader = field(default_factory=VectorReader)
    steps: int = 1000  # of the network that guesses first
    refine: int = 10  # steps of Levenberg-Marquardt
    filter: nn.Module | None = None
    raw: PrivateData | None = None

    def facing(self, filter_: nn.Module, raw: PrivateData) -> DecodeAttacker:
        """The attacker of this filter, with labelled raw records of its own."""
        return replace(self, filter=filter_, raw=raw)

    def fit(self, known: PrivateData, seed: int) -> DecodeFitted:
        """Learn from the raw records that it was given; see `Attacker.fit`.

        Raises:
            AttackError: it has no filter and records, or the filter shows no code.
        """
        if self.filter is None or self.raw is None:
            raise AttackError("decode: it needs the filter; name it in an attack on a kept filter")
        decoder = CodeDecoder.learn(
            self.filter, self.raw.records, seed, steps=self.steps, refine=self.refine
        )
        codes = self._erring(decoder, self.filter, self.raw, seed + 1)
        return DecodeFitted(decoder, self.reader.fit(codes, seed))

    def _erring(
        self, decoder: CodeDecoder, filter_: nn.Module, raw: PrivateData, seed: int
    ) -> PrivateData:
        """Codes of the raw records with errors as the decoder makes them."""
        source = torch.Generator().manual_seed(seed)
        some = torch.randperm(len(raw), generator=source)[:CALIBRATION]
        codes, sent = drawn(filter_, raw.records[some], source)
        errors = decoder.decode(sent) - codes
        every = torch.cat(
            [drawn(filter_, part, source)[0] for part in torch.split(raw.records, CHUNK)]
        )
        rows = torch.randint(len(errors), (len(every),), generator=source)
        return replace(raw, records=every + errors[rows])
