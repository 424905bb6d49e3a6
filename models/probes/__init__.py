"""What can be asked of users' data: a library of probes, each one bounded number a user.

A probe is a written hypothesis, such as "records are recognised better once turned back". Nodes
compute it; only a noised sum over all users ever leaves the federation. Adding one is a `Probe` and
a line here, or an entry point of another package.
"""

from __future__ import annotations

from foundation.registry import Registry
from models.probes.protocol import Probe

PROBES: Registry[Probe] = Registry(
    "probe",
    "fedlens.probes",
    {
        "dark_border": "models.probes.pictures:DARK_BORDER",
        "intensity": "models.probes.pictures:INTENSITY",
        "tilt": "models.probes.pictures:TILT",
        "unchanged": "models.probes.pictures:UNCHANGED",
        "repeats": "models.probes.labels:REPEATS",
        "label_share": "models.probes.labels:LABEL_SHARE",
        "lacks_label": "models.probes.labels:LACKS_LABEL",
        "better_after": "models.probes.recognition:BETTER_AFTER",
        "confidence": "models.probes.recognition:CONFIDENCE",
        "recognised": "models.probes.recognition:RECOGNISED",
    },
)
