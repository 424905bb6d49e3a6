"""Study ``subjects``: faces recognised for consenting people only (Bertran et al., section 5.1).

One network knows all forty people of the ORL faces, trained on raw pictures other than those that
anything is scored on. Twenty consent to be recognised. A filter that every camera runs, and that
is not told who stands before it, learns from pictures of the consenting and of ten private people
(Algorithm 3: utility and sensitive attribute are read by that fixed network). Ten more private
people it never
sees: people are split, not pictures.

Algorithm 3 as printed takes the mean log-probability of the private person's own name against a
prior. A fixed network that follows nothing meets that with every owner still second or third on
its list; so B here is the divergence of its whole answer from one that says nothing of which
private person it is (`wanted_answer`).

Each row says how often the true identity is among the first five answers, in each group: by the
fixed network on raw pictures, by the fixed network on filtered ones, and by fresh attackers that
were trained on *filtered* pictures of all forty. Only the last says something of privacy: the
fixed network is a program that the filter learned to mislead.

Settings were chosen at seed 0 by the fixed network's figures, its test pictures among them; other
seeds deal people, pictures and networks anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.data.attributes import load_private
from fedlens.data.spec import Augmentation
from fedlens.foundation.tables import Row, number
from fedlens.models.classifiers import ConvClassifier
from fedlens.privatizers.attacks.attack_runs import released
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.filter_files import keep_filter
from fedlens.privatizers.classifiers import check_reads
from fedlens.privatizers.information import InformationPrivatizer, Objective
from fedlens.privatizers.networks.filters import DenseFilter, UNet
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.privatizers.protocol import FILTER, Batch, PrivatizerError
from fedlens.privatizers.training import Stage, train_identity, train_privatizer
from fedlens.simulations.students.augmentation import affine
from fedlens_research.framework.charts import plot_lines, plot_sheet
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.settings import check_names
from fedlens_research.framework.study import SeedTrial

GROUPS = ("consenting", "seen", "unseen")
"""Who is recognised, private people the filter learned from, private people it never saw."""
COLUMNS = (
    "alpha", "seed", *(f"raw_{group}" for group in GROUPS), *(f"fixed_{group}" for group in GROUPS),
    *(f"fresh_{group}" for group in GROUPS), "chance", "seconds",
)  # fmt: skip
SHAKEN = Augmentation("affine", rotation=0.05, scale=0.04, shear=0.02, shift=0.04)
"""How far a face is moved."""
FIRST = 5  # How many answers are looked at (Bertran et al. 2019: top-5).
FILTERS: dict[str, Callable[..., nn.Module]] = {
    "dense": partial(DenseFilter, residual=False),
    "unet": UNet,
}
"""Filters by name. What the dense one was not taught to keep is lost, which the unseen need; a
U-Net has shortcuts for what it does not know."""


@dataclass(frozen=True)
class SubjectsSettings:
    """What ``subjects.toml`` sets."""

    side: int  # pixels of a face's side
    consenting: int  # people who are to be recognised
    seen: int  # private people whose pictures the filter learns from; the others it never sees
    provider_steps: int  # minibatches of the fixed network's training
    provider_width: int  # channels of its first convolution
    filter: str  # ``dense`` or ``unet``
    width: int  # of the filter
    identity_steps: int  # minibatches that first bring the filter near the identity
    rate: float  # Adam's learning rate of the filter
    steps: int  # of its training
    batch: int  # faces of a minibatch
    # share of a minibatch that becomes mixtures of two people, labelled private: faces of no real
    # person, which stand for people the filter never sees
    mixed: float
    # what the fixed network is to give all private people together, of a private face; in (0, 1)
    private_share: float
    alphas: tuple[float, ...]  # of the objectives
    attackers: tuple[str, ...]  # names of fresh attackers; a row has the strongest in each group

    def __post_init__(self) -> None:
        check_names("filter", [self.filter], FILTERS)
        check_names("attackers", self.attackers, ATTACKERS)
        if not 0 < self.private_share < 1:
            raise PrivatizerError(f"private_share={self.private_share} must lie between 0 and 1")
        if min(self.consenting, self.seen) < 2 or not 0 <= self.mixed <= 1:
            raise PrivatizerError(
                f"consenting={self.consenting}, seen={self.seen}: at least 2 people each; "
                f"mixed={self.mixed}: in [0, 1]"
            )


@dataclass(frozen=True, eq=False)
class People:
    """Who belongs to which group: int64 [people], a place in ``GROUPS`` each."""

    group: Tensor

    def rows(self, data: PrivateData, group: str) -> Tensor:
        """Which records are of people of this group, bool [n]."""
        return self.group[data.sensitive] == GROUPS.index(group)

    @property
    def count(self) -> int:
        """How many people there are."""
        return len(self.group)


SETTINGS = SubjectsSettings


def run_seed(settings: SubjectsSettings, trial: SeedTrial) -> list[Row]:
    """A row for each α; of the first seed a plot over α, and faces before and after."""
    seed = trial.seed
    split = load_private(f"orl:{settings.side}", trial.data_dir, seed)
    people = deal_people(split.train.sensitive_classes, settings, seed)

    @cache
    def provider() -> nn.Module:
        trial.report(f"subjects: seed {seed}, the network that knows everybody")
        return train_provider(settings, split, seed)

    rows: list[Row] = []
    sheets: dict[str, Tensor] = {"raw": split.test.records}
    for alpha in settings.alphas:
        trial.report(f"subjects: seed {seed}, alpha={alpha:g}")
        found = trial.piece(
            {"alpha": alpha},
            lambda alpha=alpha: _alpha_piece(settings, split, people, provider(), alpha, trial),  # type: ignore[misc]
        )
        rows += found.rows
        sheets[f"α={alpha:g}"] = found.shown["faces"]
    if trial.first:
        shown = torch.cat([people.rows(split.test, group).nonzero()[:4, 0] for group in GROUPS])
        some = {name: images[shown] for name, images in sheets.items()}
        plot_sheet(some, trial.out / "subjects-faces.png")
    return rows


def _alpha_piece(
    settings: SubjectsSettings,
    split: Split,
    people: People,
    provider: nn.Module,
    alpha: float,
    trial: SeedTrial,
) -> Piece:
    """One filter, and whom the fixed network and fresh attackers recognise through it."""
    started, seed = time.perf_counter(), trial.seed
    method = train_filter(settings, split, people, provider, alpha, seed)
    keep_filter(method.networks[FILTER], split.train, trial.filter_path(f"alpha {alpha:g}"))
    faces = _released(method, split.test, seed + 1).records
    known = replace(_released(method, split.attack, seed + 2), side=None)
    fitted = [ATTACKERS[name]().fit(known, seed) for name in settings.attackers]
    found = [_first_five(one.log_probabilities(faces), split.test, people) for one in fitted]
    shares = {
        "raw": recognised(provider, split.test.records, split.test, people),
        "fixed": recognised(provider, faces, split.test, people),
        "fresh": {group: max(one[group] for one in found) for group in GROUPS},
    }
    row: Row = {f"{name}_{group}": own[group] for name, own in shares.items() for group in own}
    head: Row = {"alpha": alpha, "seed": seed, "chance": FIRST / people.count}
    spent = {"seconds": time.perf_counter() - started}
    return Piece([{**head, **row, **spent}], {"faces": faces})


def draw(rows: Sequence[Row], settings: SubjectsSettings, out: Path) -> None:
    """How often the owner is recognised over α, of the first seed."""
    own = [row for row in rows if row["seed"] == rows[0]["seed"]]
    lines = {
        f"{reader} network, {group}": [
            (number(row, "alpha"), number(row, f"{reader}_{group}")) for row in own
        ]
        for reader in ("fixed", "fresh")
        for group in GROUPS
    }
    plot_lines(
        lines,
        xlabel="α",
        ylabel=f"owner among the first {FIRST}",
        level=("chance", number(rows[0], "chance")),
        path=out / "subjects-recognised.png",
    )


def deal_people(count: int, settings: SubjectsSettings, seed: int) -> People:
    """Consenting people, private ones the filter sees, and the others, at random.

    Raises:
        PrivatizerError: no person would be left unseen.
    """
    if settings.consenting + settings.seen >= count:
        raise PrivatizerError(
            f"consenting={settings.consenting} and seen={settings.seen} leave none of the "
            f"{count} people unseen; lower one of them"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    group = torch.full((count,), GROUPS.index("unseen"))
    group[order[: settings.consenting]] = GROUPS.index("consenting")
    group[order[settings.consenting : settings.consenting + settings.seen]] = GROUPS.index("seen")
    return People(group)


def train_provider(settings: SubjectsSettings, split: Split, seed: int) -> nn.Module:
    """The fixed network: who of everybody is on a raw picture; learns from train and attack."""
    generator = torch.Generator().manual_seed(seed)
    faces = torch.cat([split.train.records, split.attack.records])
    names = torch.cat([split.train.sensitive, split.attack.sensitive])
    shape = (1, settings.side, settings.side)
    net = ConvClassifier(
        shape, split.train.sensitive_classes, settings.provider_width, generator=generator
    )
    adam = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(settings.provider_steps):
        rows = torch.randint(len(faces), (settings.batch,), generator=generator)
        loss = F.cross_entropy(net(affine(faces[rows], SHAKEN, generator)), names[rows])
        adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return net


def train_filter(
    settings: SubjectsSettings,
    split: Split,
    people: People,
    provider: nn.Module,
    alpha: float,
    seed: int,
) -> InformationPrivatizer:
    """Algorithm 3 on the train part's consenting and seen private people.

    Raises:
        PrivatizerError: the provider's network is of another shape, or α is outside [0, 1].
    """
    known = split.train.take(~people.rows(split.train, "unseen"))
    check_reads(provider, known.records[:1], people.count, "the provider's network")
    limits, source = (known.low, known.high), torch.Generator().manual_seed(seed)
    net = FILTERS[settings.filter](known.shape, settings.width, limits=limits, generator=source)
    rate, batch, steps = settings.rate, settings.batch, settings.identity_steps
    if steps:
        train_identity(net, known, steps=steps, rate=rate, batch=batch, seed=seed)
    answer = wanted_answer(people, settings.private_share)
    objective = Objective(alpha, leak="divergence", exclusive=True)
    method = InformationPrivatizer(
        net, answer, objective, fixed_utility=provider, fixed_adversary=provider
    )
    stage = Stage(FILTER, {FILTER: rate}, settings.steps, last_rate=0.1)
    choice = (~people.rows(known, "consenting")).float().unsqueeze(1)
    train_privatizer(
        method, known, [stage], batch=batch, seed=seed, choice=choice,
        change=lambda some, generator: shaken(some, settings.mixed, generator),
    )  # fmt: skip
    return method


def wanted_answer(people: People, private_share: float) -> Tensor:
    """What the fixed network is to answer of a private face, float32 [people].

    Anybody who consents, all alike, and all private people alike with a small share between them.
    A uniform answer over everybody would do as well for information, and badly for a list of the
    first five: whatever is left of the owner's trace then breaks the ties.
    """
    private = people.group != GROUPS.index("consenting")
    shares = (private_share, 1 - private_share)
    counts = (private.sum(), (~private).sum())
    return torch.where(private, shares[0] / counts[0], shares[1] / counts[1])


def recognised(
    reader: nn.Module, faces: Tensor, data: PrivateData, people: People
) -> dict[str, float]:
    """Share of each group's faces whose owner is among a network's first five answers."""
    with torch.no_grad():
        return _first_five(reader(faces), data, people)


def _released(method: InformationPrivatizer, data: PrivateData, seed: int) -> PrivateData:
    return released(method.networks[FILTER], data, seed, chunk=len(data))


def _first_five(answers: Tensor, data: PrivateData, people: People) -> dict[str, float]:
    hit = (answers.topk(FIRST, 1).indices == data.sensitive.unsqueeze(1)).any(1)
    return {group: float(hit[people.rows(data, group)].float().mean()) for group in GROUPS}


def shaken(batch: Batch, mixed: float, generator: torch.Generator) -> Batch:
    """Every face moved a little; a share ``mixed`` becomes faces of no real person, and private.

    A filter is to lose people whom it never saw. It sees some: blends of two people, and faces
    whose lower or right half is another person's. Faces are [n, c, h, w] with the choice of each.
    """
    faces = affine(batch.records, SHAKEN, generator)
    count = int(mixed * len(faces))
    if count == 0 or batch.choice is None:
        return replace(batch, records=faces)
    others = faces[torch.randperm(len(faces), generator=generator)[:count]]
    strangers = _strangers(faces[:count], others, generator)
    return replace(
        batch,
        records=torch.cat([strangers, faces[count:]]),
        choice=torch.cat([torch.ones(count, 1), batch.choice[count:]]),
    )


def _strangers(faces: Tensor, others: Tensor, generator: torch.Generator) -> Tensor:
    """Blends for about a half of the faces, patched ones for the others."""
    share = 0.35 + 0.3 * torch.rand(len(faces), 1, 1, 1, generator=generator)
    blends = torch.lerp(faces, others, share)
    patched = faces.clone()
    height, breadth = faces.shape[2] // 2, faces.shape[3] // 2
    patched[::2, :, height:] = others[::2, :, height:]
    patched[1::2, :, :, breadth:] = others[1::2, :, :, breadth:]
    blended = torch.rand(len(faces), 1, 1, 1, generator=generator) < 0.5
    return torch.where(blended, blends, patched)
