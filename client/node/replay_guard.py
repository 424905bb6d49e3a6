"""Steps that a deployed node takes once, whatever runs beside it.

A server may send two messages of one step at the same time; were each answered from the same kept
state, a node would sign two lists of survivors and give up both of a party's secrets. So a step
leaves a mark in a folder of the node's own before its answer leaves, which only one can leave.

So it is with a round of record mode, whose noise is the node's own: a message that comes again, by
whoever's doing, would be answered with fresh noise, and the two answers are a release more than the
run's ledger has. In user mode a node's answer follows from the message and its data alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context

from fedlens.client.messages import TrainRequest
from fedlens.client.users.protocol import NodeDataError, is_simulated

ROUNDS = "fedlens.rounds"
"""Record of a node's context: the last round of record mode that it took, of which run."""
_KEPT_SECONDS = 24 * 3600
LASTING = "round-"


class TakenBefore(NodeDataError):
    """A step of a secure sum, or a round of record mode, that was answered already."""


def take_round(request: TrainRequest, context: Context) -> None:
    """Take a round of record mode: later ones alone are answered, each once.

    Raises:
        TakenBefore: it was taken, or a later one of its run was.
        NodeDataError: as `take_once`.
    """
    if request.mechanism.fixed_seed >= 0:
        return  # its noise is no secret, and the same each time
    run = hashlib.sha256(request.key).hexdigest()
    last = context.state.config_records.get(ROUNDS)
    if last is not None and last["run"] == run and request.round <= int(str(last["round"])):
        raise TakenBefore(f"round {request.round} was asked for again, or out of its order")
    if not is_simulated(context):  # simulated nodes answer one message after another
        forget_old_marks()
        take_once(request.key, f"round {request.round} of node {context.node_id}", lasting=True)
    context.state[ROUNDS] = ConfigRecord({"run": run, "round": request.round})


def take_once(secret: bytes, step: str, *, lasting: bool = False) -> None:
    """Take a step of the sum, or of the run, that a secret belongs to.

    Args:
        secret: of the sum or the run.
        step: in words.
        lasting: keep the mark for as long as the machine runs: a run has no end that a node knows.

    Raises:
        TakenBefore: it was taken, in this process or another of the node's.
        NodeDataError: the folder of marks is not the node's own.
    """
    name = hashlib.sha256(secret + step.encode("ascii")).hexdigest()
    mark = _folder() / (LASTING + name if lasting else name)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise TakenBefore("a step or a round was asked for twice at a time") from None


def forget_old_marks() -> None:
    """Remove marks of sums that ended long ago; not those that last."""
    before = time.time() - _KEPT_SECONDS
    for mark in _folder().iterdir():
        if not mark.name.startswith(LASTING) and mark.stat().st_mtime < before:
            mark.unlink(missing_ok=True)


def _folder() -> Path:
    """A folder that this user alone may enter, among the machine's temporary files."""
    folder = Path(tempfile.gettempdir()) / f"fedlens-sums-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise NodeDataError(f"{folder} is not this user's alone: remove it, or set TMPDIR")
    return folder
