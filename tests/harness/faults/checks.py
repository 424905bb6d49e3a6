"""What has to hold of a run after whatever befell it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.foundation.errors import FedlensError
from fedlens.server.config.schedule import total_rounds
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory
from fedlens.store import open_store
from harness.faults.victim import DRAWS, Victim


def problems_between(victim: Victim) -> list[str]:
    """What is wrong between two processes of a run: nothing, one hopes."""
    found = _of_draws(victim.folder / DRAWS)
    if (victim.run / "ledger.jsonl").exists():
        try:
            Ledger.open(victim.run / "ledger.jsonl")
        except LedgerError as error:
            found.append(f"ledger: {error}")
    return found


def problems_at_end(victim: Victim) -> list[str]:
    """What is wrong with a run that went on until it was done."""
    directory, rounds = RunDirectory.open(victim.run), total_rounds(victim.config)
    try:
        entries = Ledger.verify(directory.ledger)
        spending_of(victim.config, directory)
    except FedlensError as error:
        return [f"ledger: {error}"]
    found = _of_draws(victim.folder / DRAWS)
    if [entry.round for entry in entries] != list(range(1, rounds + 1)):
        found.append(f"ledger: rounds {[entry.round for entry in entries]}")
    snapshot = directory.load_state()
    if snapshot is None or snapshot.round != rounds:
        found.append("state: it is not that of the last round")
    run_id = str(Ledger.read(directory.ledger).header["run_id"])
    with open_store(victim.store or directory.default_store) as store:
        mirrored = [row.entry_hash for row in store.ledger(run_id)]
        releases, status = store.releases(run_id), store.run(run_id).status
        stored = [record.round for record in store.rounds(run_id)]
    if mirrored != [entry.hash for entry in entries]:
        found.append("store: it mirrors another ledger")
    if len(releases) != rounds or stored != list(range(1, rounds + 1)):
        found.append(f"store: {len(releases)} releases, {len(stored)} rounds")
    if status != "finished":
        found.append(f"store: the run is {status}")
    left = [path.name for path in victim.run.rglob("*.part")]
    left += [path.name for path in (victim.run / "checkpoint").glob("release-*")]
    return found + [f"left behind: {name}" for name in left]


def lost_releases(victim: Victim) -> int:
    """Rounds that were paid for and whose release a fault took."""
    directory = RunDirectory.open(victim.run)
    run_id = str(Ledger.read(directory.ledger).header["run_id"])
    with open_store(victim.store or directory.default_store) as store:
        return sum(release.status == "lost" for release in store.releases(run_id))


def _of_draws(notes: Path) -> list[str]:
    """Noise that was drawn twice, or before its ledger entry was on the disk."""
    if not notes.exists():
        return []
    draws = [json.loads(line) for line in notes.read_bytes().splitlines() if line.endswith(b"}")]
    found = [
        f"noise without an entry: {draw}" for draw in draws if draw["round"] != draw["entries"]
    ]
    for what in ("round", "noise"):
        twice = [value for value, times in Counter(d[what] for d in draws).items() if times > 1]
        found += [f"noise twice: {what} {value}" for value in twice]
    return found
