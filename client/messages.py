"""What travels between server and nodes, and nothing else does.

This is the contract of the federation: the server builds requests and reads replies with it, the
client the other way round. Every message holds at most one `ArrayRecord` and one `ConfigRecord`.
A reply carries sums over a node's users, never anything of a single user, never a loss or a text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from foundation.errors import FedlensError

DESCRIBE = "query.describe"
TRAIN = "train"
DONE = "done"
LONGEST_NAME = 64
"""Characters of a secret's name."""
FAILED = "failed"
"""The only word a failed handler sends: exception texts can quote data."""

Vector = NDArray[np.float32]
Scalar = bool | int | float | str


class ReplyError(FedlensError, ValueError):
    """A reply that is not what was asked for; the message says what, never what it holds."""


@dataclass(frozen=True)
class Description:
    """What a node says of itself: public facts of the enrolment and of the data's schema."""

    partition: int
    """Position among the nodes, the order in which sums are added up."""
    users: int
    """Users enrolled on the node."""
    shape: tuple[int, int, int]
    """Channels, height, width of an image."""
    classes: int
    sensitive_attribute: str = ""
    """Name of the secret that is known of each record; empty for none."""
    sensitive_classes: int = 0
    """Its number of classes."""

    def to_record(self) -> RecordDict:
        """As the content of a reply."""
        config = ConfigRecord(
            {
                "status": DONE,
                "partition": self.partition,
                "users": self.users,
                "shape": list(self.shape),
                "classes": self.classes,
                "sensitive_attribute": self.sensitive_attribute,
                "sensitive_classes": self.sensitive_classes,
            }
        )
        return RecordDict({"config": config})

    @classmethod
    def from_record(cls, record: RecordDict) -> Description:
        """Read a reply.

        Raises:
            ReplyError: the node failed, or the reply lacks a field or has one of another kind.
        """
        config = _config(record)
        shape = config.get("shape")
        numbers = [config.get(name) for name in ("partition", "users", "classes")]
        sides = shape if isinstance(shape, list) and len(shape) == 3 else [None]
        if not isinstance(shape, list) or not all(_natural(n) for n in (*numbers, *sides)):
            raise ReplyError("a description lacks a field or has one of another kind")
        partition, users, classes = (int(n) for n in numbers)  # type: ignore[arg-type]
        sensitive_attribute, sensitive_classes = (
            config.get("sensitive_attribute", ""),
            config.get("sensitive_classes", 0),
        )  # nodes of before: none
        if (
            not isinstance(sensitive_attribute, str)
            or len(sensitive_attribute) > LONGEST_NAME
            or not _natural(sensitive_classes)
        ):
            raise ReplyError("a description's secret is of another kind")
        size = (int(shape[0]), int(shape[1]), int(shape[2]))
        return cls(partition, users, size, classes, sensitive_attribute, int(sensitive_classes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class TrainRequest:
    """One round's work for one node."""

    round: int
    users: tuple[int, ...]
    """The users drawn on this node, as positions on the node; in record mode unused."""
    settings: dict[str, Scalar]
    """Flat settings of the critic and the clip: `server.config.tree` keys without their section."""
    weights: dict[str, Vector]
    """Flat parameter vectors: ``critic`` and ``generator`` where the critic's family needs them;
    ``filter`` where images are filtered before anything else; ``players`` and ``public`` where the
    filter itself is trained."""
    seed: int
    """Seeds the node's batches and generator noise; never privacy noise."""

    def to_record(self) -> RecordDict:
        """As the content of a message."""
        arrays = {name: Array(np.ascontiguousarray(v)) for name, v in self.weights.items()}
        config = ConfigRecord({f"set.{k}": v for k, v in self.settings.items()})
        config["round"], config["users"], config["seed"] = self.round, list(self.users), self.seed
        return RecordDict({"config": config, "weights": ArrayRecord(arrays)})

    @classmethod
    def from_record(cls, record: RecordDict) -> TrainRequest:
        """Read a message.

        Raises:
            ReplyError: it lacks a field.
        """
        config = _config(record, replied=False)
        try:
            return cls(
                round=int(config["round"]),  # type: ignore[arg-type]
                users=tuple(int(u) for u in config["users"]),  # type: ignore[union-attr]
                seed=int(config["seed"]),  # type: ignore[arg-type]
                settings={k[4:]: v for k, v in config.items() if k.startswith("set.")},  # type: ignore[misc]
                weights={k: a.numpy() for k, a in record.array_records["weights"].items()},
            )
        except (KeyError, TypeError):
            raise ReplyError("a request lacks a field or has one of another kind") from None


@dataclass(frozen=True)
class TrainReply:
    """The sum of a node's clipped contributions."""

    total: NDArray[np.float64]
    """Sum over the drawn users of their clipped updates, shape [P]; in record mode the node's own
    noised update."""
    norms: NDArray[np.int64]
    """Histogram of the realised clipped norms over 64 equal bins of (0, C], rounded up: private
    bookkeeping of the Bayesian accountant. Empty where no evidence is taken."""

    def to_record(self) -> RecordDict:
        """As the content of a reply."""
        arrays = ArrayRecord({"total": Array(self.total), "norms": Array(self.norms)})
        return RecordDict({"config": ConfigRecord({"status": DONE}), "arrays": arrays})

    @classmethod
    def from_record(cls, record: RecordDict) -> TrainReply:
        """Read a reply; values are not judged here (`server.aggregation` does).

        Raises:
            ReplyError: the node failed, or the arrays are missing or of another kind.
        """
        _config(record)
        try:
            arrays = record.array_records["arrays"]
            total, norms = arrays["total"].numpy(), arrays["norms"].numpy()
        except Exception:  # a peer's bytes: whatever they break, the reply is refused
            raise ReplyError("a reply's arrays cannot be read") from None
        if not isinstance(total, np.ndarray) or not isinstance(norms, np.ndarray):
            raise ReplyError("a reply holds something else than arrays")
        if total.dtype != np.float64 or norms.dtype != np.int64:
            raise ReplyError("a reply's arrays have another dtype than float64 and int64")
        return cls(total, norms)


def failure() -> RecordDict:
    """The whole content of a reply from a handler that failed."""
    return RecordDict({"config": ConfigRecord({"status": FAILED})})


def _config(record: RecordDict, *, replied: bool = True) -> ConfigRecord:
    config = record.config_records.get("config")
    if config is None:
        raise ReplyError("a message lacks its config record")
    if replied and config.get("status") != DONE:
        raise ReplyError("the node reported a failure")
    return config


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
