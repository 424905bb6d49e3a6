"""Messages of a real deployment that come twice, late, in another order, in another run, or never.

A run is trained over processes that talk by Flower with TLS; who runs the SuperLink sends each
message twice and plays earlier ones again. Then a second run, for which nodes have a state of their
own, begins with all messages of the first, and one of its own is held back until a later round.

    PYTHONPATH=tests python -m harness.deployed_faults.messages

does so with each kind of exchange, and prints how the messages that came again were answered.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedlens.client import secure_messages as wire
from fedlens.client.messages import TRAIN, TrainRequest
from harness.deployed_faults.federation import Federation, federation
from harness.deployed_faults.hostile_grid import ANSWERS, Sent, read_sent
from harness.deployed_faults.processes import ROUNDS, SETTINGS, as_run, wait_for_end
from harness.faults.checks import problems_at_end

ONCE = (wire.KEYS, wire.SHARES, wire.MASKED, wire.AGREE, wire.REVEAL)
MASKED = {"data.nodes": 3, "aggregation.secure": True, "aggregation.tolerated_dropouts": 1}
WAYS: dict[str, Mapping[str, object]] = {
    "sums of users": {},
    "records": {
        "privacy.unit": "record",
        "privacy.delta": 1e-5,
        "data.records_per_node": 60,
    },
    "masked sums": MASKED,
    "masked sums, noise of nodes": {**MASKED, "aggregation.noise": "distributed"},
}


@dataclass
class Exchanged:
    """What nodes answered, over both runs."""

    problems: list[str] = field(default_factory=list)
    kinds: dict[str, list[int]] = field(default_factory=dict)
    """By kind: messages, those that came again, and of these the answered and the failed."""


@contextmanager
def hostile_federation(root: Path, way: str) -> Iterator[Federation]:
    """A federation for a way of exchange, with a hostile server."""
    wanted = WAYS[way]
    names = ("north", "south", "west")[: int(str(wanted.get("data.nodes", 2)))]
    unit = str(wanted.get("privacy.unit", "user"))
    with federation(root, names, unit, hostile=True) as made:
        yield made


def messages_played_again(
    made: Federation, way: str, *, runs: int = 2, rounds: int = ROUNDS
) -> Exchanged:
    """Runs under an adversary, and what is wrong with them and with the answers.

    Args:
        made: the federation, whose server is that adversary.
        way: of `WAYS`.
        runs: how many; each begins with all messages of those before.
        rounds: of each.
    """
    config, found = made.root / "run.toml", Exchanged()
    settings = {**SETTINGS, **WAYS[way], "tasks.critic.rounds": rounds, "rounds.deadline": 300.0}
    config.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()))
    for name in (f"run-{number + 1}" for number in range(runs)):
        status = wait_for_end(made.submit(config, name))
        if status != 0:
            said = (made.root / "said.log").read_text(errors="replace")
            found.problems.append(f"{name}: status {status}: {said[-800:]}")
            continue
        run = as_run(made, made.run_folder(name))
        found.problems += [f"{name}: {what}" for what in problems_at_end(run)]
        made.notes.unlink(missing_ok=True)
    lines = (made.messages / ANSWERS).read_text(encoding="utf-8").splitlines()
    judge(found, read_sent(made.messages), [json.loads(line) for line in lines])
    return found


def judge(found: Exchanged, sent: Iterable[Sent], answers: Iterable[Mapping[str, str]]) -> None:
    """Count answers, and find those that no message may have."""
    by_digest = {one.digest: one for one in sent}
    told, times = defaultdict[str, list[str]](list), defaultdict[str, int](int)
    for answer in answers:
        times[answer["digest"]] += 1
        if answer["done"]:
            told[answer["digest"]].append(answer["told"])
    for digest, one in by_digest.items():
        count = found.kinds.setdefault(one.kind, [0, 0, 0, 0])
        again, done = max(0, times[digest] - 1), max(0, len(told[digest]) - 1)
        for place, more in enumerate((1, again, done, again - done)):
            count[place] += more
        if done and is_once(one):
            found.problems.append(
                f"{one.kind} of group {one.group!r} was answered {done + 1} times"
            )
        if len(set(told[digest])) > 1:
            found.problems.append(f"{one.kind} of group {one.group!r} was answered in two ways")


def is_once(one: Sent) -> bool:
    """Whether a second answer to a message would be one too many."""
    if one.kind == TRAIN:
        return TrainRequest.from_record(one.record()).mechanism.unit == "record"
    return one.kind in ONCE


def main() -> None:
    """Play each way's messages again and print the table."""
    parser = argparse.ArgumentParser(prog="python -m harness.deployed_faults.messages")
    parser.add_argument("--only", default="", help="ways whose name has this in it")
    only, console = parser.parse_args().only, Console()
    table = Table("exchange", "message", "sent", "came again", "answered again", "failed", "s")
    for way in [way for way in WAYS if only in way]:
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="faults-") as root,
            hostile_federation(Path(root), way) as made,
        ):
            found = messages_played_again(made, way)
        seconds = f"{time.monotonic() - began:.0f}"
        for kind, counts in found.kinds.items():
            table.add_row(way, kind, *map(str, counts), seconds)
        for problem in found.problems:
            console.print(f"{way}: {problem}", markup=False, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
