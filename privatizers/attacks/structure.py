"""What a filter's numbers say before anybody attacks: is there noise, and does the bound hold?

A filter with a bounded code promises that its code is c + N(0, I) with |c| ≤ r, and that a release
is computed from that code alone. All of it can be looked up in the filter: noise is an argument, so
its law shows when it is varied; the bound when records, odd ones too, are put in; the certificate
follows from both. Each is one `Check`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from fedlens.privatizers.attacks.claims import Claims
from fedlens.privatizers.attacks.targets import noise_covariance
from fedlens.privatizers.channels import channel_of, clean_codes, decoder_of
from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.networks.information import gaussian_capacity
from fedlens.privatizers.protocol import PrivatizerError

TRIALS = 64
"""Records, and draws of noise, that are put into a filter whose inside is not known."""
TOLERANCE = 1e-3
"""Relative, of lengths and covariances: float32 and no more."""
EXTREMES = (1.0, 1e3, 1e30)
STILL = 1e-6
"""Noise that moves a release by less than this share of what records do is none."""


class Verdict(StrEnum):
    """Of a check, and of all."""

    HOLDS = "holds"
    FALLS = "falls"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Check:
    """One question that was put to a filter.

    Attributes:
        what: is checked.
        verdict: whether it is as claimed, or as it must be.
        found: in words, with the figures.
    """

    what: str
    verdict: Verdict
    found: str

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return {**asdict(self), "verdict": str(self.verdict)}


def overall(checks: Sequence[Check]) -> Verdict:
    """Falls where any does; else cannot tell where any cannot; else holds."""
    found = {check.verdict for check in checks}
    return next((one for one in (Verdict.FALLS, Verdict.UNKNOWN) if one in found), Verdict.HOLDS)


def odd_records(shape: Sequence[int], seed: int = 0) -> Tensor:
    """Records [n, *shape] that no data has: flat, chequered, drawn at random, huge, no numbers."""
    source = torch.Generator().manual_seed(seed)
    size = math.prod(shape)
    noise = torch.rand(TRIALS, size, generator=source) * 2 - 1
    chequered = (torch.arange(size) % 2 * 2.0 - 1)[None]
    flat = torch.cat([torch.zeros(1, size), torch.ones(1, size), -torch.ones(1, size), chequered])
    every = torch.cat([*(scale * torch.cat([flat, noise]) for scale in EXTREMES)])
    no_numbers = torch.tensor([math.inf, -math.inf, math.nan])[:, None].expand(3, size)
    return torch.cat([every, no_numbers]).view(-1, *shape)


def check_structure(
    filter_: nn.Module,
    shape: Sequence[int],
    claims: Claims | None = None,
    records: Tensor | None = None,
) -> list[Check]:
    """All that can be looked up.

    Args:
        filter_: in evaluation mode.
        shape: of a record.
        claims: what its file says of it.
        records: [n, ...] that it is for; odd ones are put in besides.
    """
    some = odd_records(shape)[: 4 + TRIALS] if records is None else records[:TRIALS]
    checks = [_noise(filter_, some, claims)]
    if channel_of(filter_) is not None and hasattr(filter_, "radius"):
        every = [odd_records(shape)] + ([] if records is None else [records])
        checks += [
            _law(filter_, some),
            _bound(filter_, every),
            _certificate(filter_, claims),
            _nothing_beside(filter_, some),
        ]
    elif claims is not None and claims.nats is not None and claims.nats > 0:
        checks.append(_uncertified(filter_, claims))
    return checks


def require_sound(filter_: nn.Module, shape: Sequence[int], claims: Claims | None) -> None:
    """Refuse a filter without noise, or beyond its bound, before it is let near records.

    Raises:
        PrivatizerError: naming what is wrong, and how to say that it is meant.
    """
    checks = check_structure(filter_, shape, claims)
    wrong = [one for one in checks if one.verdict == Verdict.FALLS]
    if not wrong and claims is not None and not claims.noise:
        wrong = checks[:1]
    if wrong:
        said = "; ".join(f"{one.what}: {one.found}" for one in wrong)
        raise PrivatizerError(
            f"the filter does not protect: {said}. Take another file, or say --unsafe "
            "(unsafe=True) where you mean it"
        )


@torch.no_grad()
def noise_moves(filter_: nn.Module, records: Tensor) -> float:
    """Root mean square of what noise changes in a release, in that of what records change."""
    shape = noise_shape_of(filter_)
    if not shape:
        return 0.0
    source = torch.Generator().manual_seed(0)
    noises = [torch.randn(len(records), *shape, generator=source) for _ in range(2)]
    one, two = (filter_(records, noise, None).flatten(1).double() for noise in noises)
    same = noises[0][:1].expand_as(noises[0])
    fixed = filter_(records, same, None).flatten(1).double()
    apart = float((one - two).square().mean().sqrt()) / math.sqrt(2)
    spread = float(fixed.std(0).square().mean().sqrt())
    if apart == 0:
        return 0.0
    return apart / spread if spread > 0 else math.inf


def _noise(filter_: nn.Module, records: Tensor, claims: Claims | None) -> Check:
    """Whether what is released changes with noise at all."""
    share = noise_moves(filter_, records)
    if share > STILL:
        size = "as much as" if math.isinf(share) else f"{share:.3g} times what"
        return Check("noise", Verdict.HOLDS, f"moves a release {size} records do")
    words = "none: one record always gives one release, and who has the filter can search for it"
    if claims is not None and not claims.noise:
        return Check("noise", Verdict.HOLDS, "none, as claimed")
    return Check("noise", Verdict.FALLS, words)


@torch.no_grad()
def _law(filter_: nn.Module, records: Tensor) -> Check:
    """Whether N(0, I) is added to the code, of every record alike."""
    what = "law of the code's noise"
    laws = [noise_covariance(filter_, record) for record in records[:3]]
    law = laws[0]
    if law is None:
        return Check(what, Verdict.UNKNOWN, "not simply added")
    eigenvalues = torch.linalg.eigvalsh(law)
    low, high = float(eigenvalues.min()), float(eigenvalues.max())
    words = f"variances {low:.4g} to {high:.4g}, claimed 1"
    if low < 1 - TOLERANCE:
        return Check(what, Verdict.FALLS, words)
    alike = all(one is not None and torch.allclose(one, law, atol=1e-2) for one in laws)
    if not alike or not _straight(filter_, records):
        return Check(what, Verdict.FALLS, "is not added alike to every record: " + words)
    return Check(what, Verdict.HOLDS, words)


@torch.no_grad()
def _straight(filter_: nn.Module, records: Tensor) -> bool:
    """Whether a draw of noise moves the code of each record as it moves that of the first."""
    channel, shape = channel_of(filter_), noise_shape_of(filter_) or (0,)
    if channel is None:
        return False
    noise = torch.randn(len(records), *shape, generator=torch.Generator().manual_seed(1))
    moved = [(channel(records, sign * noise) - channel(records, 0 * noise)) for sign in (-1, 1, 2)]
    first = records[:1].expand_as(records)
    alone = channel(first, noise) - channel(first, 0 * noise)
    wanted = (-alone, alone, 2 * alone)
    return all(bool((a - b).abs().max() < 1e-2) for a, b in zip(moved, wanted, strict=True))


@torch.no_grad()
def _bound(filter_: nn.Module, parts: Sequence[Tensor]) -> Check:
    """Whether codes stay within the radius, of records and of odd ones."""
    what, radius = "length of the code", float(filter_.radius)  # type: ignore[arg-type]
    longest = 0.0
    for part in parts:
        lengths = clean_codes(filter_, part).double().norm(dim=1)
        if not bool(torch.isfinite(lengths).all()):
            return Check(what, Verdict.FALLS, "no number for some record")
        longest = max(longest, float(lengths.max()))
    verdict = Verdict.HOLDS if longest <= radius * (1 + TOLERANCE) else Verdict.FALLS
    return Check(what, verdict, f"at most {longest:.4g}, bound {radius:.4g}")


def certified_nats(filter_: nn.Module) -> float | None:
    """(k/2) log(1 + r²/k) of a bounded code with noise; None where there is no such code."""
    radius, size = getattr(filter_, "radius", None), getattr(filter_, "coded", 0)
    return gaussian_capacity(float(radius), int(size)) if radius is not None and size else None


def _certificate(filter_: nn.Module, claims: Claims | None) -> Check:
    """Whether radius and numbers of the code give what is claimed, and no more."""
    what, nats = "certificate", certified_nats(filter_)
    if nats is None:
        if claims is not None and claims.nats is None:
            return Check(what, Verdict.HOLDS, "none, and none claimed")
        return Check(what, Verdict.FALLS, "none: the code has no noise")
    stated = float(filter_.capacity)  # type: ignore[arg-type]
    words = f"{nats:.3f} nats by radius and noise"
    if nats > stated * (1 + TOLERANCE):
        return Check(what, Verdict.FALLS, f"{words}, {stated:.3f} by its arguments")
    if claims is None:
        return Check(what, Verdict.HOLDS, words)
    if claims.nats is None:
        return Check(what, Verdict.HOLDS, f"{words}, none claimed")
    verdict = Verdict.HOLDS if nats <= claims.nats * (1 + TOLERANCE) else Verdict.FALLS
    return Check(what, verdict, f"{words}, claimed {claims.nats:.3f}")


def _uncertified(filter_: nn.Module, claims: Claims) -> Check:
    """A certificate is claimed of a filter that has no bounded code to compute it from."""
    return Check(
        "certificate",
        Verdict.UNKNOWN,
        f"claimed {claims.nats:.3f} nats, which hang on records; this filter has no bounded code",
    )


@torch.no_grad()
def _nothing_beside(filter_: nn.Module, records: Tensor) -> Check:
    """Whether a release is made of the code, and of nothing else of the record."""
    what, decode = "what is released", decoder_of(filter_)
    channel = channel_of(filter_)
    if decode is None or channel is None:
        return Check(what, Verdict.UNKNOWN, "no decoder to compare it with")
    shape = noise_shape_of(filter_) or (0,)
    noise = torch.randn(len(records), *shape, generator=torch.Generator().manual_seed(2))
    deviation = float(getattr(filter_, "output_noise_std", 0.0))
    sent = decode(channel(records, noise))
    if deviation:
        coded = int(getattr(filter_, "coded", 0))
        sent = sent + deviation * noise.flatten(1)[:, coded:].view_as(sent)
    low, high = float(getattr(filter_, "low", -math.inf)), float(getattr(filter_, "high", math.inf))
    off = float((filter_(records, noise, None) - sent.clamp(low, high)).abs().max())
    if off > TOLERANCE * max(1.0, float(sent.abs().max())):
        return Check(what, Verdict.FALLS, f"up to {off:.3g} off what the code alone gives")
    return Check(what, Verdict.HOLDS, "the decoded code and noise of its own, nothing else")
