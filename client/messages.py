"""What travels between server and nodes, and nothing else does.

By it the server builds requests and reads replies, the client the other way round. A message holds
an `ArrayRecord` and a `ConfigRecord` at most. Replies carry sums over users: no one's own, no text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fedlens.client.private_arrays import SALT, fresh_salt, private_array, read_private
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.names import LONGEST_NAME

DESCRIBE = "query.describe"
TRAIN = "train"
DONE = "done"
MEMBER_BYTES = 8
"""Of a user's keyed number."""
SPLIT = "split"
"""Where the model of a private split travels among the weights, and its settings' table."""
FAILED = "failed"
"""The only word a failed handler sends: exception texts can quote data."""

Vector = NDArray[np.float32]
Scalar = bool | int | float | str
Natural = Annotated[int, Field(ge=0)]
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
"""How what travels is read: an unknown field or another type is refused."""


class ReplyError(FedlensError, ValueError):
    """A reply that is not what was asked for; the message says what, never what it holds."""


class Description(BaseModel):
    """What a node says of itself: public facts of the enrolment and of the data's schema."""

    model_config = STRICT

    partition: Annotated[int, Field(ge=0, lt=2**31)]
    """Position among the nodes, the order in which sums are added up."""
    users: Annotated[int, Field(ge=0, lt=2**53)]
    """Users on the list that the node gives: who is enrolled there, and who was and left since the
    run asked first. Who is on it keeps the position, and who joins comes last."""
    shape: Annotated[tuple[Natural, Natural, Natural], BeforeValidator(tuple)]
    """Channels, height, width of an image."""
    classes: Natural
    sensitive_attribute: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    """Name of the sensitive attribute that is known of each record; empty for none."""
    sensitive_classes: Natural = 0
    """Its number of classes."""
    slice: Annotated[str, Field(max_length=2 * LONGEST_NAME + 1)] = ""
    """The slice of the users that the node answers for; empty for all."""
    splits: bool = False
    """Whether the node leaves out who is on the other side of a private split."""
    members: bytes = b""
    """The users' keyed numbers in the order of their positions, `MEMBER_BYTES` each; empty where
    the node's operator gives no key: see `fedlens.client.node.members`."""
    own: bool = True
    """Whether the data are the node's own, and no simulation's."""
    federation: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    """Name of the federation under whose contract they were prepared; empty for none."""
    contract: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """SHA-256 of that contract; empty for none."""

    def to_record(self) -> RecordDict:
        """As the content of a reply."""
        fields = {**self.model_dump(), "shape": list(self.shape), SALT: fresh_salt()}
        return RecordDict({"config": ConfigRecord({"status": DONE, **fields})})

    @classmethod
    def from_record(cls, record: RecordDict) -> Description:
        """Read a reply.

        Raises:
            ReplyError: the node failed, or the reply lacks a field or has one of another kind.
        """
        fields = dict(_config(record).items())
        try:
            del fields["status"], fields[SALT]
            return cls.model_validate(fields)
        except (ValidationError, TypeError, KeyError):
            raise ReplyError("a description lacks a field or has one of another kind") from None


class Mechanism(BaseModel):
    """What bounds and hides a round's contributions, as the ledger describes it."""

    model_config = STRICT

    unit: Literal["user", "record"]
    sampling_rate: float
    """q; in record mode nodes draw records by it."""
    noise_multiplier: float
    """z, relative to the clipping norm, on the sum; in record mode nodes add this noise."""
    clipping_norm: float
    """C: L2 bound of one user's (or record's) contribution, the sensitivity of the sum."""
    denominator: float
    """What the noised sum is divided by, fixed beforehand."""
    steps: Annotated[int, Field(ge=1)]
    """Noised steps on a node that a round is made of in record mode; 1 in user mode."""
    fixed_seed: int
    """Tests only: where record mode's draws come from; -1 for the operating system."""


class FilterSettings(BaseModel):
    """What nodes need to run a filter, or to give pairs of class and sensitive attribute."""

    model_config = STRICT

    network: str
    width: int
    consenting: float
    output_noise_std: float
    """Of a filter of network ``code``; the others have none."""
    capacity: float
    """Nats that the code of a filter of ``code`` or ``spectral`` can tell at most; 0 for others."""
    highest_frequency: int
    """Of what a filter of network ``spectral`` sees; 0 for the others."""
    sensitive_attribute: str
    pairs: bool
    """Whether a record's class is the pair of its class and its sensitive attribute."""


class SplitSettings(BaseModel):
    """How a node scores its users by a fixed model, and which side of the threshold is asked."""

    model_config = STRICT

    side: Literal["below", "from"]
    """Users whose score is below the threshold, or those at it and above."""
    rule: Literal["recognised", "confidence"]
    threshold: Annotated[float, Field(gt=0, le=1)]
    records: Annotated[int, Field(gt=0)]
    """Records of a user that are scored at most, and that a user is scored as if having."""
    components: Natural
    """Of the model, an annotator."""
    features: str


@dataclass(frozen=True, eq=False)
class UserSplit:
    """One side of a private split, as it travels."""

    settings: SplitSettings
    model: Vector
    """The annotator as a flat vector, float32 [n]: public by now."""

    @property
    def identity(self) -> str:
        """SHA-256 (hex) of all that decides a user's score: equal for both sides of one split."""
        settings = json.dumps(self.settings.model_dump(exclude={"side"}), sort_keys=True)
        digest = hashlib.sha256(settings.encode())
        digest.update(np.ascontiguousarray(self.model, dtype="<f4").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class TrainRequest:
    """One round's work for one node.

    Its size on the wire does not depend on who was drawn, and every node gets one in every round.
    """

    round: int
    users: tuple[int, ...]
    """The users drawn on this node, as ascending positions on the list that it gave when it was
    asked whom it hosts; in record mode unused."""
    kind: str
    """Which kind of task is asked for."""
    mechanism: Mechanism
    settings: Mapping[str, Scalar]
    """The task's own: what its kind's class on the node reads as its typed settings."""
    weights: Mapping[str, Vector]
    """Flat parameter vectors by the names that the task gives them, and ``filter`` where images
    are filtered before anything else."""
    seed: int
    """Public, the same for all nodes: seeds generated images; never privacy noise."""
    enrolled: int
    """How many users of the node's list the server goes by, the first so many. ``users`` travels as
    one bit for each of them."""
    key: bytes
    """The run's, for the seeds of users' batches and of a filter's noise: see
    `fedlens.client.users.seeds`.
    """
    records_per_user: int
    """User mode: records that a user has at most and is computed as if having; 0: the node's."""
    filter: FilterSettings | None = None
    split: UserSplit | None = None
    """User mode: whose users count; all others are as users without records."""
    unlabelled: bool = False
    """Whether all records are to be seen as of one class, which is none."""

    def to_record(self) -> RecordDict:
        """As the content of a message."""
        weights = self.weights if self.split is None else {**self.weights, SPLIT: self.split.model}
        arrays = {name: Array(np.ascontiguousarray(v)) for name, v in weights.items()}
        config = ConfigRecord({"kind": self.kind, "round": self.round, "seed": self.seed})
        config.update({"enrolled": self.enrolled, "cohort": _as_bits(self.users, self.enrolled)})
        config.update({"key": self.key, SALT: fresh_salt()})
        config.update({"records_per_user": self.records_per_user, "unlabelled": self.unlabelled})
        tables = {"mechanism": self.mechanism.model_dump(), "task": self.settings}
        if self.filter is not None:
            tables["filter"] = self.filter.model_dump()
        if self.split is not None:
            tables[SPLIT] = self.split.settings.model_dump()
        for table, settings in tables.items():
            config.update({f"{table}.{key}": value for key, value in settings.items()})
        return RecordDict({"config": config, "weights": ArrayRecord(arrays)})

    def digest(self) -> bytes:
        """SHA-256 of all that is the same for every node: all but users' places and numbers."""
        record = replace(self, users=(), enrolled=0).to_record()
        told = {k: v for k, v in record["config"].items() if k != SALT}
        config = {k: v.hex() if isinstance(v, bytes) else v for k, v in told.items()}
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for name, array in sorted(record.array_records["weights"].items()):
            values = array.numpy()
            parts = name.encode(), f"{values.dtype.str} {values.shape}".encode(), values.tobytes()
            digest.update(b"".join(hashlib.sha256(part).digest() for part in parts))
        return digest.digest()

    @classmethod
    def from_record(cls, record: RecordDict) -> TrainRequest:
        """Read a message.

        Raises:
            ReplyError: it lacks a field, or has one of another kind.
        """
        config = _config(record, replied=False)
        filtered, split = _table("filter", config), _table(SPLIT, config)
        try:
            weights = {k: a.numpy() for k, a in record.array_records["weights"].items()}
            model = weights.pop(SPLIT, None) if split else None
            return cls(
                round=int(config["round"]),  # type: ignore[arg-type]
                users=_from_bits(config["cohort"], int(config["enrolled"])),  # type: ignore[arg-type]
                enrolled=int(config["enrolled"]),  # type: ignore[arg-type]
                kind=str(config["kind"]),
                mechanism=Mechanism.model_validate(_table("mechanism", config)),
                settings=_table("task", config),
                weights=weights,
                seed=int(config["seed"]),  # type: ignore[arg-type]
                key=bytes(config["key"]),  # type: ignore[arg-type]
                records_per_user=int(config["records_per_user"]),  # type: ignore[arg-type]
                filter=FilterSettings.model_validate(filtered) if filtered else None,
                split=_split(split, model),
                unlabelled=bool(config["unlabelled"]),
            )
        except Exception:  # bytes from elsewhere: whatever they break, the request is refused
            raise ReplyError("a request lacks a field or has one of another kind") from None


def _split(settings: dict[str, Any], model: Vector | None) -> UserSplit | None:
    """A side of a split.

    Raises:
        ValueError: it lacks its model or a setting.
    """
    if not settings:
        return None
    if model is None or model.dtype != np.float32:
        raise ValueError("a split needs its model")
    return UserSplit(SplitSettings.model_validate(settings), model)


def _as_bits(users: tuple[int, ...], enrolled: int) -> bytes:
    """One bit a user enrolled, whether drawn or not."""
    drawn = np.zeros(enrolled, dtype=np.bool_)
    drawn[list(users)] = True
    return np.packbits(drawn).tobytes()


def _from_bits(bits: object, enrolled: int) -> tuple[int, ...]:
    """What `_as_bits` packed.

    Raises:
        ValueError: it is none of so many users.
    """
    if not isinstance(bits, bytes) or len(bits) != -(-enrolled // 8):
        raise ValueError("a cohort is one bit for each user")
    drawn = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8)))
    if len(drawn) and drawn[-1] >= enrolled:
        raise ValueError("a cohort names a user beyond those enrolled")
    return tuple(drawn.tolist())


def _table(name: str, config: ConfigRecord) -> dict[str, Any]:
    """The fields of a table, which travel as ``name.field``."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}


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
        arrays = ArrayRecord({n: private_array(getattr(self, n)) for n in ("total", "norms")})
        return RecordDict({"config": ConfigRecord({"status": DONE}), "arrays": arrays})

    @classmethod
    def from_record(cls, record: RecordDict) -> TrainReply:
        """Read a reply; values are not judged here (`fedlens.server.round.aggregation` does).

        Raises:
            ReplyError: the node failed, or the arrays are missing or of another kind.
        """
        _config(record)
        try:
            arrays = record.array_records["arrays"]
            total, norms = read_private(arrays["total"]), read_private(arrays["norms"])
        except Exception:  # a peer's bytes: whatever they break, the reply is refused
            raise ReplyError("a reply's arrays cannot be read") from None
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
