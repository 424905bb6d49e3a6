"""What a node refuses to do, by its operator's own word: no server can lower it.

In record mode a node's own noise is what protects its records, so a request for too little of it is
refused here. In user mode the server adds the noise and a node cannot see it; its operator can still
limit how often, how densely and for what the node's users are asked for.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from accountant.noise import test_mode
from client.data import NodeDataError
from client.messages import Scalar, TrainRequest
from foundation.files import write_durably


class RequestRefused(NodeDataError):
    """A request below the node's floor; names the setting of the node's own configuration."""


@dataclass(frozen=True)
class NodePolicy:
    """A node's floor, from its own configuration: the keys are the fields with hyphens."""

    least_noise_multiplier: float = 0.0
    """z below which a request is refused, relative to the clipping norm."""
    largest_sampling_rate: float = 1.0
    """q above which a request is refused."""
    most_rounds: int = 0
    """Train requests that the node ever answers, whatever the run; 0 for no limit. They are counted
    in ``rounds_file``."""
    rounds_file: str = ""
    """Absolute path of a file of the node's own; written before a reply leaves."""
    kinds: str = ""
    """Kinds of task that are allowed, separated by spaces; empty for all."""
    units: str = "user record"
    """``user``, ``record`` or both, separated by a space."""
    records_per_user: int = 0
    """Records that a user contributes at most, where that is below the run's number; 0 for the
    run's."""
    allow_no_noise: bool = False
    """Record mode: answer a request without noise, or with noise of a fixed seed, which protects no
    record."""
    reply_after: float = 0.0
    """Seconds after its arrival that a request is answered, not sooner: a fixed schedule against
    those who watch the network. What takes longer is answered when it is done."""

    @classmethod
    def of(cls, node_config: Mapping[str, Scalar]) -> NodePolicy:
        """Read a node's configuration; its other keys are not ours.

        Raises:
            NodeDataError: a value of another type, or a limit on rounds without a file.
        """
        found: dict[str, Scalar] = {}
        for name, default in vars(cls()).items():
            key = name.replace("_", "-")
            if key not in node_config:
                continue
            given = node_config[key]
            if isinstance(default, float) and type(given) is int:
                given = float(given)
            if type(given) is not type(default):
                kind = type(default).__name__
                raise NodeDataError(f"{key}={given!r} of the node's configuration: give a {kind}")
            found[name] = given
        return cls(**found)._checked()  # type: ignore[arg-type]

    def _checked(self) -> NodePolicy:
        if self.most_rounds > 0 and not Path(self.rounds_file).is_absolute():
            raise NodeDataError("most-rounds needs rounds-file, an absolute path of the node's own")
        if unknown := set(self.units.split()) - {"user", "record"}:
            raise NodeDataError(f"units={sorted(unknown)}: give user, record or both")
        return self

    def accept(self, request: TrainRequest) -> TrainRequest:
        """The request as the node answers it, counted.

        Raises:
            RequestRefused: it is below the node's floor.
        """
        mechanism = request.mechanism
        self._check_kind(request.kind, mechanism.unit)
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
        secret = mechanism.fixed_seed < 0 or test_mode()
        noised = mechanism.noise_multiplier > 0 and secret
        if mechanism.unit == "record" and not noised and not self.allow_no_noise:
            raise RequestRefused("record mode without secret noise needs allow-no-noise=true")
        self._count(mechanism.steps)
        if 0 < self.records_per_user < request.records_per_user:
            return replace(request, records_per_user=self.records_per_user)
        return request

    def _check_kind(self, kind: str, unit: str) -> None:
        if unit not in self.units.split():
            raise RequestRefused(f"unit {unit!r} is not among units = {self.units!r}")
        if self.kinds and kind not in self.kinds.split():
            raise RequestRefused(f"kind {kind!r} is not among kinds = {self.kinds!r}")

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
