"""The ClientApp of the bundle: simulated users, or a node's own where its operator names them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache

import numpy as np
import torch
from flwr.app import Context
from numpy.typing import NDArray

from fedlens.client.app import build_client_app, own_policy
from fedlens.client.contract import PREFIX
from fedlens.client.node.file import open_node_users
from fedlens.client.node.policy import USUAL_RECORDS, NodePolicy
from fedlens.client.node.slices import in_slice
from fedlens.client.users.protocol import (
    ArrayUsers,
    DataOrigin,
    LocalData,
    LocalUsers,
    Rows,
    is_simulated,
)
from fedlens.data.registry import Dataset, DatasetError, load
from fedlens.data.sensitive import SensitiveValues, sensitive_values_of
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.unlabelled import NO_CLASS, NONE, OWN, reads_own_labels
from fedlens.models.faults.planting import SOUND, PlantedFault, faulty_users, parse_faults
from fedlens.server.config.loading import read_run_config
from fedlens.server.config.slices import parse_slices
from fedlens.server.config.tree import Config, DataConfig
from fedlens.simulations.federation.labels import labelled_as
from fedlens.simulations.federation.partitions import Partition, partition

# Users of a simulation some of whom hold faulty records: planted, to learn what would be seen.

_HOW = 8
"""Stream of the run's seed that what is random in a fault is drawn from."""


@dataclass(frozen=True, eq=False)
class FaultyUsers(ArrayUsers):
    """Users over arrays, those with a fault seen through it.

    A faulty user's records follow from the user's own, the run's seed and the user's number.
    """

    faults: tuple[PlantedFault, ...] = ()
    which: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """[users], each user's fault, or `SOUND`."""
    seed: int = 0
    _made: dict[int, LocalData] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        users: ArrayUsers,
        faults: tuple[PlantedFault, ...],
        which: NDArray[np.int64],
        seed: int,
    ) -> FaultyUsers:
        """The same users, with faults.

        Raises:
            WrongUse: a fault does not go with such data.
        """
        for fault in faults:
            fault.check(users.shape, users.classes)
        moved = [fault.fault.name for fault in faults if fault.fault.kind == "label"]
        if moved and users.sensitive is not None:
            raise WrongUse(
                f"fault {moved[0]!r} changes which records there are, and these have a sensitive "
                "attribute: plant a fault of images, or train without a privatizer"
            )
        own = {one.name: getattr(users, one.name) for one in fields(ArrayUsers)}
        return cls(**own, faults=faults, which=which, seed=seed)

    def held(self, position: int) -> int:
        """How many records the user holds, under the fault."""
        if self.which[position] == SOUND:
            return super().held(position)
        return len(self._faulty(position).labels)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of one user, under the fault."""
        if self.which[position] == SOUND:
            return super().user(position, rows)
        data = self._faulty(position)
        return data if rows is None else _some(data, rows)

    def _faulty(self, position: int) -> LocalData:
        if position not in self._made:
            self._made[position] = self._changed(position)
        return self._made[position]

    def _changed(self, position: int) -> LocalData:
        own, fault = super().user(position), self.faults[self.which[position]]
        state = np.random.SeedSequence([self.seed, _HOW, self.user_id(position) % 2**64])
        setting = fault.setting(self.classes, int(state.generate_state(1, np.uint32)[0]))
        images, labels = fault.fault.applied(own.images, own.labels, setting)
        return LocalData(images, labels, own.sensitive, own.hides)


def _some(data: LocalData, rows: Rows) -> LocalData:
    picked = torch.from_numpy(np.asarray(rows))
    sensitive = None if data.sensitive is None else data.sensitive[picked]
    hides = None if data.hides is None else data.hides[picked]
    return LocalData(data.images[picked], data.labels[picked], sensitive, hides)


_CONSENT, _SLICES = 6, 9
MOST_SHARES = 4
"""Equal shares of a data set beyond which a simulated user's records do not count."""


@lru_cache(maxsize=2)
def simulated_federation(data: DataConfig, seed: int) -> tuple[Dataset, Partition]:
    """A data set dealt out to users; the same for the same arguments, in any process.

    Whoever the records are dealt to by their own labels, they are labelled as ``data.labels`` says.
    """
    by_class = data.scheme in ("dirichlet", "classes")
    needed = reads_own_labels(data.labels) or by_class
    partly = needed and data.labels != OWN
    dataset = load(data.name, data.dir or None, labelled=needed, partly=partly)
    if by_class:
        _check_dealt_by_labels(data, dataset)
    dealt = partition(
        dataset.train_labels.clip(0),  # where some have none, nothing is dealt out by labels
        users=data.everyone,
        scheme=data.scheme,
        sizes=data.sizes,
        alpha=data.alpha,
        classes_per_user=data.classes_per_user,
        user_ids=dataset.user_ids,
        samples_per_user=data.samples_per_user or None,
        seed=seed,
    )
    return labelled_as(data, dataset, dealt, seed)


def _check_dealt_by_labels(data: DataConfig, dataset: Dataset) -> None:
    if lacking := int((dataset.train_labels == NO_CLASS).sum()):
        raise DatasetError(
            f"{data.name}: data.scheme = {data.scheme!r} deals records out by their labels, and "
            f"{lacking} of {len(dataset.train_labels)} training records have no label: set "
            "data.scheme = 'iid', or 'column' where the data name their users"
        )


@lru_cache(maxsize=2)
def _sensitive(data: DataConfig, seed: int, name: str) -> SensitiveValues:
    return sensitive_values_of(simulated_federation(data, seed)[0], name)


def simulated_sensitive(config: Config) -> SensitiveValues | None:
    """What the simulated users want hidden; None where no node must know it.

    Raises:
        DatasetError: the data has no such sensitive attribute, or one of a single class.
    """
    name = config.privatizer.hidden_attribute
    return _sensitive(config.data, config.seed, name) if name else None


def hiding_users(config: Config) -> NDArray[np.bool_] | None:
    """Which simulated users want their attribute hidden, bool [users]; None where all do."""
    share = config.privatizer.consenting_share
    if share == 0:
        return None
    source = np.random.default_rng([config.seed, _CONSENT])
    hides = np.ones(config.data.everyone, dtype=np.bool_)
    hides[source.permutation(len(hides))[: round(share * len(hides))]] = False
    return hides


def open_simulated_users(context: Context) -> LocalUsers:
    """The block of users that a simulated node hosts; deployments bring their own data."""
    if not is_simulated(context):  # a deployed node must never train on a simulation's data unasked
        return open_node_users(context)
    config = read_run_config(context.run_config)
    number = int(context.node_config["partition-id"])
    return node_users(config, number)


@lru_cache(maxsize=2)
def _hosted(data: DataConfig, seed: int, hidden: tuple[str, float]) -> dict[int, ArrayUsers]:
    """The users of nodes that were opened before, by the node's number."""
    return {}


def node_users(config: Config, number: int) -> ArrayUsers:
    """The users of simulated node ``number``: an equal block of the partition.

    The same object for the same data set and node, so that nodes can keep between rounds what they
    made of it.
    """
    dataset, dealt = simulated_federation(config.data, config.seed)
    hidden = config.privatizer.hidden_attribute, config.privatizer.consenting_share
    hosted = _hosted(config.data, config.seed, hidden)
    known = hosted.get(number)
    if known is None or known.images is not dataset.train_images:
        block = in_slice(_block(config, number, dataset, dealt), config.data.slice)
        hosted[number] = _with_faults(config, block)
    return hosted[number]


def named_classes(config: Config) -> tuple[str, ...]:
    """What people call the classes of a simulation's data, where that follows from no record.

    Nothing where they have numbers alone.
    """
    if config.data.labels == NONE or config.data.name.partition(":")[0] == PREFIX:
        return ()
    dataset, _ = simulated_federation(config.data, config.seed)
    names, numbers = dataset.class_names, tuple(map(str, range(dataset.classes)))
    return names if dataset.declared and names != numbers else ()


def forget_nodes() -> None:
    """Let go of all that simulated nodes cache; they are opened anew where they are asked again."""
    _hosted.cache_clear()


def _with_faults(config: Config, users: ArrayUsers) -> ArrayUsers:
    faults = parse_faults(config.data.fault)
    if not faults or users.ids is None:
        return users
    values = declared_values(config)
    everyone = simulated_federation(config.data, config.seed)[1].ids
    places = np.searchsorted(everyone, users.ids)
    which = faulty_users(faults, config.data.everyone, config.seed, values)[places]
    return FaultyUsers.of(users, faults, which, config.seed)


def check_planted(config: Config) -> None:
    """Refuse planted faults that do not go with the data.

    Raises:
        WrongUse: a fault is about a class that there is not, about colours of grey images, or about
            a slice that data.slices does not declare.
    """
    dataset, _ = simulated_federation(config.data, config.seed)
    declared = parse_slices(config.data.slices)
    for fault in parse_faults(config.data.fault):
        fault.check(dataset.shape, dataset.classes)
        if fault.users and (declared is None or declared.count(fault.users) is None):
            raise WrongUse(
                f"fault {fault.fault.name!r} is planted in slice {fault.users!r}, which "
                f"data.slices = {config.data.slices!r} does not declare"
            )


def declared_values(config: Config) -> dict[str, NDArray[np.str_]]:
    """Each simulated user's value of the declared attribute, by its name; empty without one."""
    declared = parse_slices(config.data.slices)
    if declared is None:
        return {}
    values = np.repeat(list(declared.users), list(declared.users.values()))
    order = np.random.default_rng([config.seed, _SLICES]).permutation(len(values))
    return {declared.attribute: values[order]}


def _block(config: Config, number: int, dataset: Dataset, dealt: Partition) -> ArrayUsers:
    bounds = np.linspace(0, dealt.users, config.data.nodes + 1).astype(int)
    first, last = int(bounds[number]), int(bounds[number + 1])
    sensitive, hides = simulated_sensitive(config), hiding_users(config)
    channels, height, width = (int(side) for side in dataset.train_images.shape[1:])
    return ArrayUsers(
        images=dataset.train_images,
        labels=dataset.train_labels,
        indices=dealt.indices,
        offsets=dealt.offsets[first : last + 1],
        shape=(channels, height, width),
        classes=dataset.classes,
        partition=number,
        sensitive=None if sensitive is None else sensitive.train,
        sensitive_attribute="" if sensitive is None else sensitive.name,
        sensitive_classes=0 if sensitive is None else sensitive.classes,
        hides=None if hides is None else hides[first:last],
        ids=dealt.ids[first:last],
        declared={name: all_[first:last] for name, all_ in declared_values(config).items()},
        origin=DataOrigin(own=False),
    )


def simulated_policy(context: Context) -> NodePolicy:
    """A node's floor; where its users are simulated, one that lets them go without noise.

    What made-up users hold is public, so their cap goes by it where the run leaves it open.
    """
    policy = own_policy(context)
    if not is_simulated(context):
        return policy
    config = read_run_config(context.run_config)
    most = config.data.records_per_user or usual_records(config)
    most = policy.records_per_user or most
    return policy.model_copy(update={"allow_no_noise": True, "records_per_user": most})


def usual_records(config: Config) -> int:
    """Records of the simulated user with most, up to a few equal shares of the data set.

    Of people whom the data name it is a fixed number: how much one of them has must not decide how
    many records of the others count.
    """
    if config.data.scheme == "column":
        return config.data.samples_per_user or USUAL_RECORDS
    return _usual_records(config.data, config.seed)


@lru_cache(maxsize=2)
def _usual_records(data: DataConfig, seed: int) -> int:
    dealt = simulated_federation(data, seed)[1]
    equal = -(-len(dealt.indices) // dealt.users)
    return min(int(dealt.sizes.max()), MOST_SHARES * equal)


client_app = build_client_app(open_simulated_users, simulated_policy)
