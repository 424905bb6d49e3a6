"""What a schedule can be expected to give, from public numbers, before it spends anything.

Noise in the classes' means follows from users, classes, clip and noise multiplier. How far classes
lie apart is a property of the data; what was found on data sets of several kinds gives two ends.
"""

from __future__ import annotations

import math

from fedlens.server.config.mechanism import release_deviation
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config
from fedlens.store.worth import NOISE_BELOW

HARD, EASY = 0.005, 0.1
"""Mean squared distance of a class from the mean of all, along the focus, in data whose classes
hardly differ (faces by gender, 0.004; ultrasound, 0.008) and in digits and clothes (0.05 to 0.13).
"""

RECORDS = 32
"""Records that a user contributes where nothing declares it."""
ENOUGH = 0.5
"""Signal that is enough for pictures whose classes hardly differ."""


def expected_signals(config: Config, classes: int, records: float) -> tuple[float, float] | None:
    """Mean signal to expect of data that is hard, and easy, to tell apart, each from 0 to 1.

    Args:
        config: of the run.
        classes: of the records.
        records: that a user contributes; ignored in record mode.

    Returns:
        None where no task releases the classes' means, or there is one class.
    """
    noise = _noise(config, classes, records)
    if noise is None or classes < 2:
        return None
    return HARD / (HARD + noise), EASY / (EASY + noise)


def _noise(config: Config, classes: int, records: float) -> float | None:
    """Squared noise to expect in a class's distance from the mean, along the focus."""
    looks = [task for task in config.critics.values() if task.releases_class_means]
    components = [task.framed_components for task in looks if task.framed_components]
    if not components:
        return None
    mass = _kept(config, looks[0], classes, records) / classes
    variances = [(release_deviation(config, task) / mass) ** 2 / task.rounds for task in looks]
    if not all(variances):
        return None
    return components[-1] * (1 - 1 / classes) / sum(1 / one for one in variances)


def _kept(config: Config, task: TaskConfig, classes: int, records: float) -> float:
    """Share of an update that the clip leaves: a row of norm 1 a record, spread over classes."""
    several = 1.0 if config.privacy.unit == "record" else max(1.0, records)
    norm = math.sqrt(1 / classes + (1 - 1 / classes) / several)
    return min(1.0, task.clipping_norm / norm)


def expectation(config: Config, classes: int, records: float) -> str:
    """One line for whoever is about to spend a budget; empty where nothing can be said.

    Args:
        config: of the run.
        classes: of the records.
        records: that a user contributes, about.
    """
    signals = expected_signals(config, classes, records)
    if signals is None:
        return ""
    hard, easy = signals
    users, unit = config.data.users, "users"
    if config.privacy.unit == "record":
        users, unit = users * config.data.records_per_node, "records"
    held = f"{users:,} {unit}"
    if easy < NOISE_BELOW:
        enough = users * math.sqrt(_odds(NOISE_BELOW) / _odds(easy))
        return (
            f"expect noise: {held} are too few for {classes} classes and this noise, however "
            f"plain the pictures are; about {_rounded(enough):,} would begin to show them, or "
            f"noise {enough / users:.1f} times smaller"
        )
    if hard >= ENOUGH:
        return f"expect more than noise: {held} are enough for {classes} classes and this noise"
    enough = users * math.sqrt(_odds(ENOUGH) / _odds(hard))
    return (
        f"expect samples that show classes as different as digits are; for classes that hardly "
        f"differ {held} are few with this noise: about {_rounded(enough):,} would do"
    )


def _odds(signal: float) -> float:
    return signal / (1 - signal)


def _rounded(users: float) -> int:
    """To two digits, upwards."""
    unit = 10.0 ** max(0, math.floor(math.log10(users)) - 1)
    return int(math.ceil(users / unit) * unit)
