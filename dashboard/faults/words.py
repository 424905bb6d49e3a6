"""Findings in sentences: how sure, what else would explain them, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedlens.dashboard.faults.answer import DiagnosedFault, DiagnosisAnswer, percent

ELSE: Mapping[str, str] = {
    "rotate90": "Users who hold the device on its side, or photographs stored without their "
    "orientation tag, if the reference has none.",
    "rotate180": "Devices mounted upside down. In digits, 6 and 9 exchange places: look at them.",
    "rotate270": "Users who hold the device on its side, or photographs stored without their "
    "orientation tag, if the reference has none.",
    "mirror": "A front camera that saves what its preview shows. Left-handed writing leans, but "
    "does not mirror.",
    "upside_down": "Images whose rows are read from the bottom, as some formats store them.",
    "tilt": "Handwriting that leans more than the reference's: a population, not a defect.",
    "shift_right": "Another way of centring the subject before it is stored.",
    "shift_down": "Another way of centring the subject before it is stored.",
    "scale": "Subjects that are smaller in these users' images, or another cropping margin: the "
    "first sign of a reference of another source.",
    "crop": "Subjects that are larger in these users' images.",
    "invert": "Dark mode, white chalk, or a scanner's negative: real content of another polarity.",
    "blur": "An older camera, or images that were enlarged before they were stored.",
    "dim": "Pens or light weaker than the reference's: the first sign of a reference of another "
    "source.",
    "gamma": "A display profile that was applied twice, or not at all.",
    "noise": "Dim light: sensors really are noisier there.",
    "stuck_column": "A frame or scan line that is in the scene itself.",
    "stuck_row": "A frame or scan line that is in the scene itself.",
    "occlude": "A finger, a logo or a time stamp in the same corner.",
    "swap_labels": "Two classes that some users really call by each other's name.",
    "shift_labels": "A list of classes in another order, or one that counts from 1.",
    "random_labels": "Users who tap through a questionnaire without looking.",
    "missing_class": "Users who never meet that class: uneven data, not a defect.",
    "new_class": "A class that the schema lacks, or images that were filed under the wrong task.",
    "frequent_class": "Users who meet that class more often: uneven data, not a defect.",
    "duplicates": "An application that saves the same image again.",
}
OTHERWISE = (
    "Users whose data really are of this kind. Compare with an earlier run of the same federation: "
    "what is common to both cancels."
)


def describe_certainty(finding: DiagnosedFault) -> str:
    """How sure a finding is."""
    q = finding.q_value
    word = "Very sure" if q < 1e-6 else "Sure" if q < 1e-3 else "Likely" if q < 0.05 else "Unsure"
    chance = "fewer than one in a million" if q < 1e-6 else f"at most {percent(max(q, 1e-3))}"
    return (
        f"{word}: of faults named on such evidence, {chance} would be false (q = {q:.2g}, over "
        "the whole library)."
    )


def describe_classes(finding: DiagnosedFault, classes: int) -> str:
    """In which classes a finding shows."""
    if not finding.classes or len(finding.classes) >= classes:
        return "All classes alike"
    return "Only in class " + ", ".join(map(str, finding.classes))


def describe_lookalikes(fault: str) -> str:
    """What else would look the same in the sums."""
    return ELSE.get(fault, OTHERWISE)


def describe_alternatives(finding: DiagnosedFault) -> str:
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


def describe_remainder(answer: DiagnosisAnswer) -> str:
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


def describe_next_steps(answer: DiagnosisAnswer) -> str:
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


def list_unseen(answer: DiagnosisAnswer) -> Sequence[tuple[str, float]]:
    """Faults that were not found with their smallest detectable share, the easiest first."""
    named = {one.fault for one in answer.findings}
    rows = [(name, share) for name, share in answer.smallest.items() if name not in named]
    return sorted(rows, key=lambda row: row[1])
