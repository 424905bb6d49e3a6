"""Made-up people on nodes, in every odd form that a user's data can have, and what nodes add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.common.serde import recorddict_to_proto

from fedlens.client.app import build_client_app
from fedlens.client.messages import FilterSettings, SplitSettings, UserSplit
from fedlens.client.users.protocol import DataOrigin, LocalData
from fedlens.models.annotators import Annotator
from fedlens.models.weights import to_vector
from fedlens.privatizers.networks.design import filter_network
from fedlens.server.config.schedule import ScheduledTask, scheduled
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.roster import Roster
from fedlens.server.learning import learner as learning
from fedlens.server.learning.learner import Learner
from fedlens.server.round import step as private_step
from fedlens.server.round.step import PrivateStep, StepPlan
from fedlens.server.tasks.protocol import TaskRequest
from fedlens.simulations.transports.inprocess import FIRST_NODE_ID, InProcessGrid

SHAPE, CLASSES, SENSITIVE = (1, 28, 28), 3, 2
MOST = 4
"""Records of a user that count, in these tests."""
CLIP = 0.05
KEY = b"a run's own key"


@dataclass(frozen=True)
class Person:
    """A user with records, or with what stands where records should be."""

    number: int
    data: LocalData
    unreadable: bool = False

    def __len__(self):
        return len(self.data.labels)


@dataclass(eq=False)
class People:
    """A node's users, as another package could bring them: nothing here is checked."""

    members: list[Person]
    partition: int
    shape = SHAPE
    classes = CLASSES
    sensitive_attribute = "height"
    sensitive_classes = SENSITIVE
    slice, people, origin = "", None, DataOrigin()

    def __len__(self):
        return len(self.members)

    def user_id(self, position):
        return self.members[position].number

    def held(self, position):
        return len(self.members[position])

    def user(self, position, rows=None):
        person = self.members[position]
        if person.unreadable:
            raise OSError("this one's records cannot be read")
        if rows is None:
            return person.data
        picked = torch.from_numpy(rows)
        found = [
            None if value is None else value[picked] if len(value) else value
            for value in (
                person.data.images,
                person.data.labels,
                person.data.sensitive,
                person.data.hides,
            )
        ]
        return LocalData(*found)


def person(number: int, records: int, seed: int = 0) -> Person:
    """Someone with ordinary records."""
    source = torch.Generator().manual_seed(1000 * seed + number)
    return Person(
        number,
        LocalData(
            torch.rand(records, *SHAPE, generator=source) * 2 - 1,
            torch.randint(CLASSES, (records,), generator=source),
            torch.randint(SENSITIVE, (records,), generator=source),
            torch.randint(2, (records, 1), generator=source).float(),
        ),
    )


def _with(someone: Person, **changes: object) -> Person:
    return replace(someone, data=replace(someone.data, **changes))


ODD: dict[str, Callable[[Person], Person]] = {
    "as they are": lambda p: p,
    "emptied": lambda p: person(p.number, 0),
    "one record": lambda p: person(p.number, 1),
    "enlarged": lambda p: person(p.number, 40 * MOST),
    "labels below": lambda p: _with(p, labels=p.data.labels - 5),
    "no labels": lambda p: _with(p, labels=torch.full_like(p.data.labels, -1)),
    "labels above": lambda p: _with(p, labels=p.data.labels + 99),
    "labels of another kind": lambda p: _with(p, labels=p.data.labels.float() / 3),
    "fewer labels": lambda p: _with(p, labels=p.data.labels[:1]),
    "NaN images": lambda p: _with(p, images=p.data.images * float("nan")),
    "an infinite pixel": lambda p: _with(p, images=p.data.images / 0.0),
    "glaring images": lambda p: _with(p, images=p.data.images * 1e30),
    "another shape": lambda p: _with(p, images=torch.zeros(len(p), 3, 8, 8)),
    "odd sensitive values": lambda p: _with(p, sensitive=p.data.sensitive - 7),
    "no sensitive values": lambda p: _with(p, sensitive=None, hides=None),
    "odd choices": lambda p: _with(p, hides=torch.full((2,), float("nan"))),
    "unreadable": lambda p: replace(p, unreadable=True),
}
"""What one user's data can be, whatever everyone else's is."""


SUMS: dict[str, object] = {
    "schedule": "frequencies moments critic",
    "privatizer.kind": "trained",
    "privatizer.trained_by": "sums",
    "privatizer.highest_frequency": 4,
    "privatizer.sensitive_attribute": "height",
    "tasks.frequencies.kind": "frequencies",
    "tasks.moments.kind": "moments",
}
KINDS: dict[str, dict[str, object]] = {
    "frozen": {},
    "focused": {
        "schedule": "warmup critic",
        "tasks.warmup.kind": "frozen",
        "tasks.critic.kind": "focused",
        "tasks.critic.components": 6,
    },
    "annotator": {
        "schedule": "critic annotator",
        "tasks.annotator.kind": "annotator",
        "tasks.annotator.components": 6,
        "tasks.annotator.features": "orientations",
    },
    "probe": {
        "schedule": "critic probe",
        "tasks.probe.kind": "probe",
        "tasks.probe.probe": "intensity",
    },
    # a card takes no clip that would cut users, for they would look as if they held nothing
    "card": {
        "schedule": "critic card",
        "tasks.card.kind": "card",
        "tasks.card.clipping_norm": 3.0,
    },
    "wgan": {"tasks.critic.kind": "wgan", "tasks.critic.local_batch": 5},
    "wgan steps": {
        "tasks.critic.kind": "wgan",
        "tasks.critic.local_batch": 3,
        "tasks.critic.local_steps": 3,
    },
    "privatizer": {
        "schedule": "privatizer critic",
        "privatizer.kind": "trained",
        "privatizer.trained_by": "rounds",
        "privatizer.network": "dense",
        "privatizer.width": 4,
        "privatizer.sensitive_attribute": "height",
        "tasks.privatizer.kind": "privatizer",
        "tasks.privatizer.adversary_width": 4,
        "tasks.privatizer.batch": 5,
    },
    "frequencies": SUMS,
    "moments": SUMS,
    "filtered": {},
    "classless": {"data.labels": "own-or-none"},
}
ASKED_OF = {
    name: name for name in ("annotator", "privatizer", "probe", "card", "frequencies", "moments")
}
"""The task that is tried, where it is not the critic."""


@dataclass(frozen=True)
class Stage:
    """One task, prepared as a run prepares it, and asked of whichever people there are."""

    config: Config
    task: ScheduledTask
    asked: TaskRequest
    size: int

    @property
    def clip(self) -> float:
        """C, what one user may move a sum by."""
        return self.task.settings.clipping_norm

    def total(
        self,
        *nodes: Sequence[Person],
        cohort: set[int] | None = None,
        split: UserSplit | None = None,
    ) -> Gathered:
        """What the nodes add up to before any noise, and what travelled.

        Args:
            nodes: who is on each.
            cohort: the numbers of those who are drawn; None for all.
            split: the side of a private split that is asked; None for everyone.
        """
        people = [People(list(members), place) for place, members in enumerate(nodes)]
        app = build_client_app(lambda context: people[context.node_config["partition-id"]])
        grid = WatchedGrid(app, len(nodes), {})
        ids = tuple(range(FIRST_NODE_ID, FIRST_NODE_ID + len(nodes)))
        roster = Roster(ids, tuple(len(members) for members in nodes))
        federation = Federation(roster, SHAPE, CLASSES, SENSITIVE)
        plan = StepPlan(
            self.config, self.task, grid, federation, self.size, float("inf"), KEY, split=split
        )
        step = PrivateStep(plan)
        drawn = [
            tuple(i for i, p in enumerate(m) if cohort is None or p.number in cohort) for m in nodes
        ]
        with _drawn(drawn):
            aggregate = step.gather(1, self.asked)
        assert not aggregate.refused
        return Gathered(aggregate.total.values, aggregate.norms, grid.requests, grid.replies)


@dataclass(frozen=True)
class Gathered:
    """A round as the server and those who watch the network see it."""

    total: np.ndarray
    norms: np.ndarray
    requests: dict[int, int]
    """Bytes that went to each node."""
    replies: dict[int, int]


class WatchedGrid(InProcessGrid):
    """Sizes of all that travels, by node."""

    def __init__(self, app, nodes, run_config):
        super().__init__(app, nodes, run_config)
        self.requests: dict[int, int] = {}
        self.replies: dict[int, int] = {}

    def _deliver(self, message):
        node = message.metadata.dst_node_id
        self.requests[node] = size_of(message.content)
        identity = super()._deliver(message)
        self.replies[node] = size_of(self._replies[identity].content)
        return identity


def size_of(content) -> int:
    return len(recorddict_to_proto(content).SerializeToString())


@contextmanager
def _drawn(cohort):
    """Have the server draw these users."""
    real = private_step.draw_users
    private_step.draw_users = lambda *_: cohort
    try:
        yield
    finally:
        private_step.draw_users = real


def staged(kind: str, unit: str = "user", **changes: object) -> Stage:
    """A kind of task as a run prepares it."""
    name = ASKED_OF.get(kind, "critic")
    common = {
        "schedule": "critic",
        "tasks.critic.kind": "frozen",
        "tasks.critic.generator_steps": 1,
        "generator.width": 8,
        "generator.batch": 20,
        "data.records_per_user": MOST,
        "data.records_per_node": 10,
        "privacy.unit": unit,
        "privacy.delta": 1e-6,
        f"tasks.{name}.clipping_norm": CLIP,
        **KINDS[kind],
        **{f"tasks.{name}.{key}": value for key, value in changes.items()},
    }
    config = Config().updated(common)
    federation = Federation(
        Roster((1, 2), (4, 4)), SHAPE, CLASSES, SENSITIVE, classless=config.data.unlabelled
    )
    real, learning.FRAME_IMAGES = learning.FRAME_IMAGES, 40
    try:
        learner = Learner(config, federation)
        for number, task in enumerate(scheduled(config), start=1):
            learner.prepare(task)
            if task.name == name:
                break
            release = np.zeros(learner.task(task).size)
            learner.learn(task, number, release, lambda *_: None)
    finally:
        learning.FRAME_IMAGES = real
    asked = learner.asked(task)
    if kind == "filtered":
        asked = replace(asked, weights={**asked.weights, "filter": _filter()}, filter=_TOLD)
    return Stage(config, task, asked, learner.task(task).size)


_TOLD = FilterSettings(
    network="dense",
    width=4,
    consenting=0.2,
    output_noise_std=0.0,
    capacity=0.0,
    highest_frequency=0,
    sensitive_attribute="height",
    pairs=False,
)


def a_split(side: str, **changes: object) -> UserSplit:
    """A split by a network that knows nothing, so that people fall on both sides."""
    network = Annotator(SHAPE, CLASSES, 6, "orientations")
    source = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in (network.projection, network.weight):
            part.copy_(torch.randn(part.shape, generator=source))
    told = {"rule": "recognised", "threshold": 0.5, "records": 3, **changes}
    settings = SplitSettings(side=side, components=6, features="orientations", **told)
    return UserSplit(settings, to_vector(network))


def _filter() -> np.ndarray:
    network = filter_network(_TOLD.model_dump(), SHAPE)
    with torch.no_grad():
        network.correct.weight.mul_(100)
    return to_vector(network)
