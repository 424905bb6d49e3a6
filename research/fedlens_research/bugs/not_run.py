"""What the page does not know, said on it."""

from __future__ import annotations

from collections import Counter

from fedlens_research.bugs.measuring import method
from fedlens_research.bugs.plan import FULL, LEFT_OUT_OF_QUICK, trials_of
from fedlens_research.bugs.results import BugResults
from fedlens_research.bugs.trained import TRAINED

CHANGED = """\
When this page was written the code of the diagnosis or of the faults had changed since it was
measured, to `{now}`: figures are those of the code that was measured."""


def not_run(results: BugResults) -> list[str]:
    """What of the whole plan was not measured, a line each."""
    done = {
        (t.question, t.data, t.users, t.seed, t.epsilon, t.fault, t.reference)
        for t in (one.trial for one in results.measured)
    }
    lines = ["## What was not run", ""]
    if results.quick:
        lines += ["This is the quick form, which leaves out", f"{LEFT_OUT_OF_QUICK}.", ""]
    if results.method != method():
        lines += [CHANGED.format(now=method()), ""]
    whole, missing = Counter[str](), Counter[str]()
    for t in trials_of(FULL):
        where = f"{t.question}: {t.data}, {t.users:,} users"
        whole[where] += 1
        key = (t.question, t.data, t.users, t.seed, t.epsilon, t.fault, t.reference)
        missing[where] += key not in done
    count, total = missing.total(), whole.total()
    lines += [f"Of the {total:,} trials of the whole plan {count:,} were not run:", ""]
    lines += [f"- {where}: {n} of {whole[where]}" for where, n in missing.items() if n]
    lines.append("")
    looked = {one.fault for one in results.looks}
    waiting = [f"`{fault}`" for fault in TRAINED if fault not in looked]
    if not looked:
        lines += ["No run was really trained for this page.", ""]
    elif not any(one.how.startswith("sums") for one in results.looks):
        lines += ["Of the really trained runs the sums were not read anew by this code.", ""]
    if looked and waiting:
        lines += [f"No really trained run was looked at for {', '.join(waiting)}.", ""]
    return lines
