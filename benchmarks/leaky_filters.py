"""Forty leaky filters and twenty sound ones, and what the gate says: ``make bench-gate``.

A small filter is trained that hides how thick a digit is, and what it claims is measured. Then it
is tampered with in forty ways: its noise, its bound, its weights, a way around the code. Each goes
through `fedlens privatizer attack`'s gate with the claims of the untouched one. Twenty filters of
other seeds and strengths go through it with claims of their own. Prints every verdict with what
decided it and what attackers read, of one release and of ten near-duplicates.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.privatizers.attacks.claims import ONE, TEN, Claims
from fedlens.privatizers.attacks.filter_attack import USUAL, Effort
from fedlens.privatizers.attacks.gate import check_claims, claims_of, measure_filter
from fedlens.privatizers.attacks.structure import Check, Verdict, check_structure, overall
from fedlens.privatizers.attacks.targets import target_of
from fedlens.privatizers.export import one_thread
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.private_data import Split
from fedlens.privatizers.protocol import FILTER
from fedlens_research.papers import STUDIES
from fedlens_research.papers.alpha_images import serving_start, train_point

DATA = "embedded-mnist-thickness"
EFFORT = replace(USUAL, reader_steps=600, tree_rounds=60, draws=2)
POINTS = (5.0, 20.0)
SEEDS = 10
ANEW = 104_729
"""Keeps the gate's noise and attackers apart from those by which claims were measured."""

Code = Callable[[ConvReleaser, Tensor, Tensor], Tensor]
Sent = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Trained:
    """A small filter, before and after it learned to hide, and what it claims."""

    filter: ConvReleaser
    start: ConvReleaser
    claims: Claims


class Tampered(nn.Module):
    """A releaser whose code or release is made in another way, and that says nothing of it."""

    def __init__(self, base: ConvReleaser, code: Code | None = None, sent: Sent | None = None):
        super().__init__()
        self.base, self.code, self.sent = base, code, sent
        self.radius, self.capacity, self.coded = base.radius, base.capacity, base.coded
        self.low, self.high, self.choices = base.low, base.high, base.choices
        self.output_noise_std = base.output_noise_std
        self.noise_shape, self.repeats_noise = base.noise_shape, True

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """The code, as it was tampered with."""
        if self.code is None:
            return self.base.channel(records, noise)
        return self.code(self.base, records, noise)

    def decoded(self, code: Tensor) -> Tensor:
        """As the releaser's."""
        return self.base.decoded(code)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """The release, as it was tampered with."""
        released = self.decoded(self.channel(records, noise))
        if self.output_noise_std:
            added = self.output_noise_std * noise[:, self.coded :].view_as(released)
            released = (released + added).clamp(self.low, self.high)
        return released if self.sent is None else self.sent(released, records)


@cache
def split() -> Split:
    """The records."""
    return load_private(DATA)


@cache
def settings() -> Any:
    """Of a small filter that is trained in seconds."""
    found = STUDIES["alpha-images"].settings(quick=True)
    return replace(found, data=DATA, width=4, reading_steps=150, copying_steps=120, steps=150)


@cache
def start(seed: int) -> Any:
    """A small filter that keeps digits and hides nothing yet, with its networks."""
    return serving_start(settings(), split().train, seed)


def train(seed: int, weight: float, effort: Effort = EFFORT) -> Trained:
    """A small filter, and what it claims."""
    method = train_point(settings(), split().train, start(seed), "loss", 1.0, weight, seed)
    network: Any = method.networks[FILTER].eval().requires_grad_(False)
    before = copy.deepcopy(start(seed).networks[FILTER]).eval().requires_grad_(False)
    target = target_of(network, split(), seed)
    measured = measure_filter(target, effort)
    claims = claims_of(network, split().test, measured.reads(), None, measured.use, 0)
    return Trained(network, before, claims)


def judge(
    network: nn.Module, claims: Claims, effort: Effort = EFFORT
) -> tuple[list[Check], dict[str, float]]:
    """All checks, and what attackers read; nobody attacks where the structure falls already."""
    test = split().test
    checks = check_structure(network, test.shape, claims, test.records)
    if overall(checks) == Verdict.FALLS:
        return checks, {}
    measured = measure_filter(target_of(network, split(), ANEW), effort)
    return [*checks, *check_claims(claims, measured)], measured.reads()


# ---- what is done to a filter


def _rebuilt(base: ConvReleaser, **arguments: Any) -> ConvReleaser:
    """The same numbers in a filter that was built otherwise, as an edited file gives it."""
    given = {"code": base.encode.out_features, "capacity": base.capacity,
             "output_noise_std": base.output_noise_std} | arguments  # fmt: skip
    made = ConvReleaser((1, 28, 28), base.width, **given)
    made.load_state_dict(base.state_dict())
    return made.eval().requires_grad_(False)


def _noise(change: Callable[[Tensor, Tensor], Tensor]) -> Code:
    """The clean code with other noise: of the noise [n, k] and the records."""

    def code(base: ConvReleaser, records: Tensor, noise: Tensor) -> Tensor:
        clean = base.channel(records, torch.zeros_like(noise))
        return clean + change(noise[:, : base.coded], records)

    return code


def _clean(change: Callable[[Tensor, Tensor], Tensor]) -> Code:
    """Another clean code: of the clean code [n, k] and the records."""

    def code(base: ConvReleaser, records: Tensor, noise: Tensor) -> Tensor:
        clean = base.channel(records, torch.zeros_like(noise))
        return change(clean, records) + noise[:, : base.coded]

    return code


def _without(*places: int) -> Callable[[Tensor, Tensor], Tensor]:
    def change(noise: Tensor, _: Tensor) -> Tensor:
        kept = torch.ones(noise.shape[1])
        kept[list(places)] = 0
        return noise * kept

    return change


def _times(by: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda numbers, _: by * numbers


def _along(noise: Tensor, _: Tensor) -> Tensor:
    """No noise in the direction in which all numbers grow."""
    return noise - noise.mean(1, keepdim=True)


def _public(noise: Tensor, records: Tensor) -> Tensor:
    """Noise that everybody can compute: it follows from the record and a key in the file."""
    source = torch.Generator().manual_seed(1)
    waves = torch.randn(records[0].numel(), noise.shape[1], generator=source)
    return 1.4 * torch.sin(1000 * records.flatten(1) @ waves).nan_to_num()


def _ink(records: Tensor) -> Tensor:
    """How much ink there is, about 0 ± 1: it tells how thick a digit is."""
    ink: Tensor = records.mean((1, 2, 3))
    return ((ink + 0.74) / 0.09).nan_to_num().clamp(-3, 3)[:, None]


def _largest(records: Tensor) -> Tensor:
    return records.nan_to_num().flatten(1).abs().amax(1, keepdim=True)


def _first(add: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def change(clean: Tensor, records: Tensor) -> Tensor:
        return torch.cat([clean[:, :1] + add(records), clean[:, 1:]], 1)

    return change


def _turned(made: Trained, share: float) -> ConvReleaser:
    """Between the filter and what it was before it learned to hide."""
    mixed = copy.deepcopy(made.filter)
    before = made.start.state_dict()
    mixed.load_state_dict(
        {name: torch.lerp(value, before[name], share) for name, value in mixed.state_dict().items()}
    )
    return mixed


def _reading(made: Trained) -> ConvReleaser:
    """The first number of the code reads the secret, as far as a line can; its length is kept."""
    found, data, seen = copy.deepcopy(made.filter), split().train, []
    handle = found.dense.register_forward_hook(lambda _, __, out: seen.append(out.relu()))
    with torch.no_grad():
        found.channel(data.records, torch.zeros(len(data), *found.noise_shape))
    handle.remove()
    rows = torch.cat([seen[0], torch.ones(len(data), 1)], 1).double()
    signs = (2 * data.sensitive - 1).double()
    ridge = rows.T @ rows + 1e-2 * torch.eye(rows.shape[1], dtype=torch.float64)
    line = torch.linalg.solve(ridge, rows.T @ signs)
    line = 3 * line / (rows @ line).std()
    with torch.no_grad():
        found.encode.weight[0], found.encode.bias[0] = line[:-1].float(), float(line[-1])
    return found


def _random(made: Trained, seed: int, *names: str) -> ConvReleaser:
    """Layers as before any training."""
    found, fresh = copy.deepcopy(made.filter), ConvReleaser(
        (1, 28, 28), made.filter.width, code=made.filter.encode.out_features,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    for name in names:
        found.get_submodule(name).load_state_dict(fresh.get_submodule(name).state_dict())
    return found


def mutants(made: Trained) -> dict[str, nn.Module]:
    """Forty, by what was done."""
    base = made.filter

    def other(change: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
        return Tampered(base, _noise(change))

    def moved(change: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
        return Tampered(base, _clean(change))

    def beside(sent: Sent) -> nn.Module:
        return Tampered(base, sent=sent)

    half = base.coded // 2
    return {
        "file: noisy=False": _rebuilt(base, noisy=False),
        "file: noisy=False, no output noise": _rebuilt(base, noisy=False, output_noise_std=0.0),
        **{f"file: capacity {nats:g}": _rebuilt(base, capacity=nats)
           for nats in (6.5, 8, 12, 20, 40)},
        **{f"noise times {by:g}": other(_times(by))
           for by in (0.0, 0.1, 0.5, 0.7, 0.9)},
        "no noise in one number": other(_without(0)),
        "no noise in two numbers": other(_without(1, 2)),
        "no noise in half of the numbers": other(_without(*range(half))),
        "half of the noise in one number": other(lambda noise, _: noise * torch.tensor(
            [0.5] + [1.0] * (noise.shape[1] - 1))),
        "no noise along one direction": other(_along),
        "one noise for all numbers": other(lambda noise, _: noise[:, :1].expand_as(noise)),
        "noise cut at a half": other(lambda noise, _: noise.clamp(-0.5, 0.5)),
        "noise squeezed": other(lambda noise, _: noise.tanh()),
        "noise rounded": other(lambda noise, _: noise.round()),
        "noise of a public key": other(_public),
        "half of the noise of a public key": other(
            lambda noise, records: (noise + _public(noise, records)) / 2**0.5),
        "noise by the record's ink": other(
            lambda noise, records: noise * (0.2 + _ink(records).clamp(-1, 1).abs())),
        "a shift hidden in the noise": other(
            lambda noise, records: noise + 3 * _ink(records).sign() * (noise != 0)),
        **{f"code {by:g} times as long": moved(_times(by))
           for by in (1.1, 1.5, 3.0)},
        "code with the ink on top": moved(_first(lambda records: 8 * _ink(records).sign())),
        "code with a little ink on top": moved(_first(lambda records: 2 * _ink(records))),
        "code without a bound for odd records": moved(
            lambda clean, records: clean * _largest(records).clamp(1, 1e6)),
        "a way around: a twentieth of the picture": beside(
            lambda sent, records: sent + 0.05 * records.nan_to_num()),
        "a way around: one corner": beside(_corner),
        "a way around: the ink in the lowest bit": beside(
            lambda sent, records: sent + 0.004 * _ink(records).sign()[..., None, None]),
        "weights before it learned to hide": made.start,
        "weights half way back": _turned(made, 0.5),
        "weights three quarters back": _turned(made, 0.75),
        "a number of the code that reads the secret": _reading(made),
        "encoder as before any training": _random(made, 1, "down1", "down2", "dense", "encode"),
        "encoder's last layer as before any training": _random(made, 2, "encode"),
    }  # fmt: skip


def _corner(sent: Tensor, records: Tensor) -> Tensor:
    found = sent.clone()
    found[..., :14, :14] = records[..., :14, :14]
    return found


def sound(effort: Effort = EFFORT) -> dict[str, Trained]:
    """Twenty of other seeds and strengths."""
    places = [(seed, weight) for weight in POINTS for seed in range(1, SEEDS + 1)]
    return {f"seed {seed}, weight {weight:g}": train(seed, weight, effort)
            for seed, weight in places}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A line of the table."""

    name: str
    verdict: Verdict
    why: str
    reads: dict[str, float]
    seconds: float


def outcome(name: str, network: nn.Module, claims: Claims, effort: Effort = EFFORT) -> Outcome:
    """What the gate says of a filter, and the first check that decided it."""
    began = time.perf_counter()
    checks, reads = judge(network, claims, effort)
    verdict = overall(checks)
    first = next((one for one in checks if one.verdict == verdict != Verdict.HOLDS), None)
    why = "" if first is None else f"{first.what}: {first.found}"
    return Outcome(name, verdict, why, reads, time.perf_counter() - began)


def print_table(title: str, rows: Sequence[Outcome]) -> None:
    """All lines."""
    table = Table("filter", "verdict", "one", "ten alike", "why", "s", title=title)
    for row in rows:
        read = [f"{row.reads[sees]:.3f}" if sees in row.reads else "-" for sees in (ONE, TEN)]
        table.add_row(row.name, str(row.verdict), *read, row.why, f"{row.seconds:.0f}")
    Console(width=170).print(table)


def say(line: str) -> None:
    """A line, at once."""
    Console(width=400).print(line, markup=False, highlight=False)


def main() -> None:
    """Print both tables and the two counts."""
    with one_thread():
        made = train(0, POINTS[-1])
        say(f"the filter claims {made.claims.row()}")
        leaky = []
        for name, network in mutants(made).items():
            leaky.append(outcome(name, network, made.claims))
            say(f"{leaky[-1].verdict}: {name}")
        print_table("leaky filters", leaky)
        honest = []
        for name, one in sound().items():
            honest.append(outcome(name, one.filter, one.claims))
            say(f"{honest[-1].verdict}: {name}")
        print_table("sound filters", honest)
    caught = sum(row.verdict == Verdict.FALLS for row in leaky)
    refused = sum(row.verdict != Verdict.HOLDS for row in honest)
    say(f"leaky: {caught} of {len(leaky)} caught; sound: {refused} of {len(honest)} refused")


if __name__ == "__main__":
    main()
