"""The ClientApp of the bundle: simulated users, or a node's own where its operator names them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from client.app import build_client_app
from client.data import ArrayUsers, LocalUsers, open_node_users
from client.datasets.registry import Dataset, load
from client.datasets.sensitive import SensitiveValues, sensitive_values_of
from server.config.tree import RUN_KEYS, Config, DataConfig
from simulations.federation.partitions import Partition, partition

_CONSENT = 6


@lru_cache(maxsize=2)
def simulated_federation(data: DataConfig, seed: int) -> tuple[Dataset, Partition]:
    """A data set dealt out to users; the same for the same arguments, in any process."""
    dataset = load(data.name, data.dir or None)
    dealt = partition(
        dataset.train_labels,
        users=data.users,
        scheme=data.scheme,  # type: ignore[arg-type]
        sizes=data.sizes,  # type: ignore[arg-type]
        alpha=data.alpha,
        classes_per_user=data.classes_per_user,
        user_ids=dataset.user_ids,
        samples_per_user=data.samples_per_user or None,
        seed=seed,
    )
    return dataset, dealt


@lru_cache(maxsize=2)
def _sensitive(data: DataConfig, seed: int, name: str) -> SensitiveValues:
    return sensitive_values_of(simulated_federation(data, seed)[0], name)


def simulated_sensitive(config: Config) -> SensitiveValues | None:
    """What the simulated users want hidden; None where no node must know it.

    Raises:
        DatasetError: the data has no such secret, or one of a single class.
    """
    if not config.privatizer.reads_sensitive:
        return None
    return _sensitive(config.data, config.seed, config.privatizer.sensitive_attribute)


def hiding_users(config: Config) -> NDArray[np.bool_] | None:
    """Which simulated users want their secret hidden, bool [users]; None where all of them do."""
    share = config.privatizer.consenting
    if not config.privatizer.active or share == 0:
        return None
    source = np.random.default_rng([config.seed, _CONSENT])
    hides = np.ones(config.data.users, dtype=np.bool_)
    hides[source.permutation(len(hides))[: round(share * len(hides))]] = False
    return hides


def open_simulated_users(context: Context) -> LocalUsers:
    """The block of users that a simulated node hosts; deployments bring their own data."""
    simulated = "num-partitions" in context.node_config and "data" not in context.node_config
    if not simulated:  # a deployed node must never train on a simulation's data unasked
        return open_node_users(context)
    settings = {k: v for k, v in context.run_config.items() if k not in RUN_KEYS}
    config = Config().updated(settings)
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
    privatizer = config.privatizer
    sensitive_attribute = privatizer.sensitive_attribute if privatizer.reads_sensitive else ""
    hidden = sensitive_attribute, privatizer.consenting if privatizer.active else 0.0
    hosted = _hosted(config.data, config.seed, hidden)
    known = hosted.get(number)
    if known is None or known.images is not dataset.train_images:
        hosted[number] = _block(config, number, dataset, dealt)
    return hosted[number]


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
    )


client_app = build_client_app(open_simulated_users)
