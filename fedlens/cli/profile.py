"""Where a run's time went, as ``--profile`` shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fedlens.cli.output import say
from fedlens.foundation.profile import REST, Profile

if TYPE_CHECKING:
    from fedlens.server.run.directory import RunDirectory

PROFILE_FILE = "profile.json"
FIXES = {
    "generator": "the server's training: leave it to the machine (generator.precision=auto, "
    "generator.threads=0)",
    "nodes": "the nodes' training: fewer users a round, or fewer local steps",
    "messages": "waiting for nodes, and what is sent: fewer nodes on one machine, or in-process",
    "students": "students, which measure the run and are no part of it: --no-student",
    "store": "drawing and storing samples: release.every, release.samples",
    "accounting": "accounting, which grows with the number of different mechanisms, not of rounds",
    REST: "loading, and reading data",
}
BAR = 30


def show_profile(profile: Profile, directory: RunDirectory) -> None:
    """Print seconds by part, say what limits the run, and keep them beside it.

    They are for the one who simulates: how long nodes took may depend on what users hold, so they
    are in no store.
    """
    seconds = profile.seconds()
    whole = sum(seconds.values())
    say(f"where {whole:.1f} s went (simulation only, not for release):")
    for part, spent in seconds.items():
        share = spent / whole
        say(f"  {part:<26} {spent:8.2f} s {share:6.1%}  {'█' * round(BAR * share)}")
    groups: dict[str, float] = {}
    for part, spent in seconds.items():
        group = part.partition(":")[0]
        groups[group] = groups.get(group, 0.0) + spent
    longest = max(groups, key=lambda group: groups[group])
    say(f"most of it: {FIXES.get(longest, longest)} ({groups[longest] / whole:.0%})")
    kept = {part: round(spent, 3) for part, spent in seconds.items()}
    directory.save(PROFILE_FILE, json.dumps(kept, indent=1, ensure_ascii=False).encode())
