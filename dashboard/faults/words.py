"""Findings in sentences: how sure, what else would explain them, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from fedlens.dashboard.faults.answer import KeptDiagnosis, KeptFinding, percent

OTHERWISE = (
    "Users whose data really are of this kind. Compare with an earlier run of the same federation: "
    "what is common to both cancels."
)


def sure(finding: KeptFinding) -> str:
    """How sure a finding is."""
    q = finding.q_value
    word = "Very sure" if q < 1e-6 else "Sure" if q < 1e-3 else "Likely" if q < 0.05 else "Unsure"
    chance = "fewer than one in a million" if q < 1e-6 else f"at most {percent(max(q, 1e-3))}"
    return (
        f"{word}: of faults named on such evidence, {chance} would be false (q = {q:.2g}, over "
        "the whole library)."
    )


def where(finding: KeptFinding, classes: int) -> str:
    """In which classes a finding shows."""
    if not finding.classes or len(finding.classes) >= classes:
        return "All classes alike"
    return "Only in class " + ", ".join(map(str, finding.classes))


def elsewise(finding: KeptFinding) -> str:
    """What else would look the same in the sums."""
    return finding.otherwise or OTHERWISE


def by_numbers(finding: KeptFinding) -> str:
    """Which other faults of the library would explain the same sums, and how well."""
    if not finding.alternatives:
        return "No other fault of the library would: each is less than a thousandth as likely."
    named = "; ".join(
        f"{one.says}, {percent(one.likelihood)} as likely" for one in finding.alternatives
    )
    certainty = "above 99%" if finding.certainty > 0.99 else percent(finding.certainty)
    return (
        f"{named[:1].upper()}{named[1:]}. That it is this one: {certainty}, if it is one of the "
        "library alone."
    )


def rest(answer: KeptDiagnosis) -> str:
    """What the omnibus test says."""
    after = "beyond the findings" if answer.findings else "at all"
    p = f"p = {answer.omnibus:.2g}"
    if answer.unexplained:
        if answer.findings:
            return (
                f"The findings do not explain all that is there ({p}): it looks like them, and may "
                "be a fault that the library does not hold. Ask a probe, and look at the faithful "
                "samples."
            )
        return (
            f"Something is there that no fault of the library explains ({p}). Look at the faithful "
            "samples, and compare with an earlier run."
        )
    return f"No sign of anything else {after} ({p})."


def next_steps(answer: KeptDiagnosis) -> str:
    """What to do with the answer."""
    if not answer.fits:
        return (
            "Choose a reference of the same kind: the test images of the same data set, or an "
            "earlier run of the same federation."
        )
    if answer.findings:
        return (
            "Look at the faithful samples for it, find the step of the application that could do "
            "this, mend it, and train again: the next diagnosis tells whether the share fell."
        )
    return "The list below says which faults this run could not have shown, however large."


def unseen(answer: KeptDiagnosis) -> Sequence[tuple[str, float]]:
    """Faults that were not found with their smallest detectable share, the easiest first."""
    named = {one.fault for one in answer.findings}
    rows = [(name, share) for name, share in answer.smallest.items() if name not in named]
    return sorted(rows, key=lambda row: row[1])
