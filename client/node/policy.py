"""What a node refuses to do, by its operator's own word: no server can lower it.

In record mode a node's own noise is what protects its records, so a request for too little of it is
refused here. In user mode the server adds the noise and a node cannot see it; its operator can
still limit how often, how densely and for what the node's users are asked for.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedlens.accountant.noise import most_chosen, test_mode
from fedlens.client.contract import CONTRACT, FederationContract, read_contract
from fedlens.client.messages import Natural, Scalar, TrainRequest
from fedlens.client.users.protocol import NodeDataError
from fedlens.foundation.files import write_durably

Aggregation = Literal["plain", "server", "distributed"]
"""How a sum of users reaches the server, in the order of what the server learns less and less."""
USUAL_RECORDS = 32
"""Records that a user contributes at most where neither run nor node has a number."""


class RequestRefused(NodeDataError):
    """A request below the node's floor; names the setting of the node's own configuration."""


class NodePolicy(BaseModel):
    """A node's floor, from its own configuration: the keys are the fields with hyphens."""

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    least_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    """z below which a request is refused, relative to the clipping norm."""
    largest_sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """q above which a request is refused; so is one that names more of the node's users than such a
    q draws (but once in 2^40 rounds), whatever it says of its own."""
    most_rounds: Natural = 0
    """Rounds that the node ever takes part in, of whichever runs (in record mode each noised step
    counts); 0 for no limit. They are counted in ``rounds-file``."""
    rounds_file: str = ""
    """Absolute path of a file of the node's own; written before anything is computed."""
    kinds: str = ""
    """Kinds of task that are allowed, separated by spaces; empty for all."""
    units: str = "user record"
    """``user``, ``record`` or both, separated by a space. A node with data of its own (``data``)
    answers for ``user`` alone unless it is told otherwise: in user mode it trusts the server with
    sums, which a node of record mode must not."""
    records_per_user: Natural = 0
    """Records that a user contributes at most, where the run has no number or a higher one; 0 for
    the run's, or 32."""
    most_values: Natural = 0
    """Numbers that a round's sum may have at most; 0 for no limit. A longer sum tells a server that
    adds no noise more of a user: one of a kind ``moments`` with ever higher frequencies tells what
    images look like."""
    forbid_splits: bool = False
    """Refuse runs on one side of a private split, in which a user's own records decide, unseen,
    whether they count."""
    allow_no_noise: bool = False
    """Where nodes add the noise (record mode, distributed noise): answer a request without it, or
    with noise of a fixed seed, which protects no one."""
    least_aggregation: Aggregation = "plain"
    """What a request for users must at least be: ``plain``; a secure sum to which the ``server``
    adds the noise; or one with ``distributed`` noise, of which this node adds its own share."""
    identity: str = ""
    """Absolute path of the node's long-term private key (OpenSSH or PEM, Ed25519 or ECDSA), which
    signs its keys of each secure sum; the SuperNode's own will do. Empty: a fresh one each time,
    which no other node's roster knows."""
    roster: str = ""
    """Absolute path of the public keys of all nodes that this one sums with, one a line as in a
    ``.pub`` file, its own among them. Empty: the server's word is taken, which protects from a
    server that looks on and not from one that puts nodes of its own in between."""
    least_colluding: Natural = 0
    """Nodes that a secure sum must presume to collude with the server; one that presumes fewer is
    refused."""
    reply_after: Annotated[float, Field(ge=0)] = 0.0
    """Seconds after its arrival that a request is answered, not sooner: a fixed schedule against
    those who watch the network. What takes longer is answered when it is done."""

    threads: Annotated[int, Field(ge=1)] = 1
    """Cores that a request is computed on. With more than one, the last bits of what is computed
    may differ from those of one: fixed seeds then give the same model on this node alone."""

    @classmethod
    def of(cls, node_config: Mapping[str, Scalar]) -> NodePolicy:
        """Read a node's configuration; its other keys are not ours.

        Raises:
            NodeDataError: a value that cannot be, or a limit on rounds without a file.
        """
        contract = contract_of(node_config)
        own = {name: key for name in cls.model_fields if (key := _key(name)) in node_config}
        usual = {"units": "user"} if "data" in node_config else {}
        if contract is not None:
            usual = {"units": contract.unit}
        given = {name: node_config[key] for name, key in own.items()}
        try:
            found = cls(**{**usual, **given})  # type: ignore[arg-type]
        except ValidationError as error:
            wrong = error.errors()[0]
            key = _key(str(wrong["loc"][0]))
            raise NodeDataError(
                f"{key}={node_config[key]!r} of the node's configuration: {wrong['msg'].lower()}"
            ) from None
        for name in ("identity", "roster"):
            if (path := getattr(found, name)) and not Path(path).is_absolute():
                raise NodeDataError(f"{name}={path}: give an absolute path")
        if found.roster and not found.identity:
            raise NodeDataError("roster needs identity: other nodes must know this one's keys too")
        if found.most_rounds > 0 and not Path(found.rounds_file).is_absolute():
            raise NodeDataError("most-rounds needs rounds-file, an absolute path of the node's own")
        found = found if contract is None else found.within(contract)
        found._check_units(deployed="data" in node_config)
        return found

    def within(self, contract: FederationContract) -> NodePolicy:
        """This floor, raised to what the federation's contract allows: each keeps the stricter.

        Raises:
            NodeDataError: nothing is allowed by both.
        """
        own, agreed = self.kinds.split(), list(contract.tasks)
        kinds = [kind for kind in agreed or own if kind in (own or agreed)]
        if (own or agreed) and not kinds:
            raise NodeDataError(
                f"kinds={self.kinds!r}: the federation's contract allows {' '.join(agreed)} alone"
            )
        if contract.unit not in self.units.split():
            raise NodeDataError(
                f"units={self.units!r}: the federation's contract is for {contract.unit}s"
            )
        caps = [cap for cap in (self.records_per_user, contract.records_per_user) if cap > 0]
        return self.model_copy(
            update={
                "kinds": " ".join(kinds),
                "units": contract.unit,
                "records_per_user": min(caps, default=0),
                "least_noise_multiplier": max(
                    self.least_noise_multiplier, contract.least_noise_multiplier
                ),
                "largest_sampling_rate": min(
                    self.largest_sampling_rate, contract.largest_sampling_rate
                ),
            }
        )

    def _check_units(self, *, deployed: bool) -> None:
        if unknown := set(self.units.split()) - {"user", "record"}:
            raise NodeDataError(f"units={sorted(unknown)}: give user, record or both")
        bare = self.least_noise_multiplier == 0 and not self.allow_no_noise
        if deployed and "record" in self.units.split() and bare:
            raise NodeDataError(
                "units=record needs least-noise-multiplier above 0: the node's own noise is all "
                "that protects its records, and a server may ask for too little"
            )

    def accept(self, request: TrainRequest, aggregation: Aggregation = "plain") -> TrainRequest:
        """The request as the node answers it, counted.

        Args:
            request: the server's.
            aggregation: how its sum reaches the server.

        Raises:
            RequestRefused: it is below the node's floor, or the node's rounds are used up.
        """
        self.check(request, aggregation)
        mechanism = request.mechanism
        self._count(mechanism.steps if mechanism.unit == "record" else 1)
        wanted = request.records_per_user, self.records_per_user
        most = min([records for records in wanted if records > 0], default=USUAL_RECORDS)
        return replace(request, records_per_user=most)

    def check(self, request: TrainRequest, aggregation: Aggregation = "plain") -> None:
        """Refuse a request without counting it.

        Raises:
            RequestRefused: it is below the node's floor.
        """
        mechanism = request.mechanism
        self._check_kind(request.kind, mechanism.unit)
        self._check_aggregation(mechanism.unit, aggregation)
        if not mechanism.noise_multiplier >= self.least_noise_multiplier:
            raise RequestRefused(
                f"noise multiplier {mechanism.noise_multiplier} is below least-noise-multiplier = "
                f"{self.least_noise_multiplier}"
            )
        if not 0 <= mechanism.sampling_rate <= self.largest_sampling_rate:
            raise RequestRefused(
                f"sampling rate {mechanism.sampling_rate} is above largest-sampling-rate = "
                f"{self.largest_sampling_rate}"
            )
        self._check_cohort(request)
        secret = mechanism.fixed_seed < 0 or test_mode()
        noised = mechanism.noise_multiplier > 0 and secret
        own = mechanism.unit == "record" or aggregation == "distributed"
        if own and not noised and not self.allow_no_noise:
            raise RequestRefused("nodes' own noise must be secret, or needs allow-no-noise=true")
        if request.split is not None and self.forbid_splits:
            raise RequestRefused("the run is on one side of a private split: forbid-splits=true")

    def check_length(self, values: int) -> None:
        """Refuse to send a sum that is longer than the node allows.

        Raises:
            RequestRefused: it is.
        """
        if self.most_values and values > self.most_values:
            raise RequestRefused(
                f"a sum of {values} numbers is asked for, most-values = {self.most_values}"
            )

    def _check_kind(self, kind: str, unit: str) -> None:
        if unit not in self.units.split():
            raise RequestRefused(f"unit {unit!r} is not among units = {self.units!r}")
        if self.kinds and kind not in self.kinds.split():
            raise RequestRefused(f"kind {kind!r} is not among kinds = {self.kinds!r}")

    def _check_cohort(self, request: TrainRequest) -> None:
        """A server that states a small q may name everybody all the same."""
        if request.mechanism.unit != "user":
            return  # the node draws
        most = most_chosen(request.enrolled, self.largest_sampling_rate)
        if len(request.users) > most:
            raise RequestRefused(
                f"more users are named than largest-sampling-rate = {self.largest_sampling_rate} "
                f"draws of {request.enrolled}: {most} at most"
            )

    def _check_aggregation(self, unit: str, aggregation: Aggregation) -> None:
        order = get_args(Aggregation)
        weaker = order.index(aggregation) < order.index(self.least_aggregation)
        if unit == "user" and weaker:
            raise RequestRefused(
                f"the sum is {aggregation!r}: least-aggregation = {self.least_aggregation!r}"
            )

    def _count(self, steps: int) -> None:
        """Add to the node's count on the disk, or refuse where it is used up."""
        if not self.most_rounds:
            return
        path = Path(self.rounds_file)
        with path.with_name(path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = _rounds_in(path) + steps
            if done > self.most_rounds:
                raise RequestRefused(f"{self.most_rounds} rounds were answered: most-rounds")
            write_durably(path, f"{done}\n".encode(), private=True)


def contract_of(node_config: Mapping[str, Scalar]) -> FederationContract | None:
    """The contract of a node's prepared store, which ``federation`` may name too; None without.

    Raises:
        NodeDataError: it cannot be read, or ``federation`` names another than the store has.
    """
    named, data = node_config.get("federation"), Path(str(node_config.get("data", "")))
    given = read_contract(Path(str(named))) if named else None
    if not (data.is_dir() and "data" in node_config):
        return given
    kept = read_contract(data / CONTRACT)
    if given is not None and given.digest() != kept.digest():
        raise NodeDataError(
            f"federation={named!r}: is another contract than the store's own ({data / CONTRACT}); "
            "prepare the data anew under it"
        )
    return kept


def _key(name: str) -> str:
    """A field as the node's configuration has it."""
    return name.replace("_", "-")


def _rounds_in(path: Path) -> int:
    """The count in a file; 0 where there is none yet.

    Raises:
        NodeDataError: the file holds something else, so nothing can be said of what was spent.
    """
    try:
        text = path.read_text(encoding="ascii").strip() if path.exists() else "0"
        if text.isdigit():
            return int(text)
    except (OSError, UnicodeDecodeError):
        pass
    raise NodeDataError(f"{path} holds no count of rounds: restore it, or remove it to begin anew")
