"""What can be asked of users' data: a library of probes, each one bounded number a user.

A probe is a written hypothesis, such as "records are recognised better once turned back". Nodes
compute it; only a noised sum over all users ever leaves the federation. Adding one is a `Probe` and
a line here, or an entry point of another package.
"""

from __future__ import annotations

from fedlens.foundation.registry import Registry
from fedlens.models.probes.protocol import Probe

PROBES: Registry[Probe] = Registry(
    "probe",
    "fedlens.probes",
    {
        "dark_border": "fedlens.models.probes.pictures:DARK_BORDER",
        "intensity": "fedlens.models.probes.pictures:INTENSITY",
        "tilt": "fedlens.models.probes.pictures:TILT",
        "unchanged": "fedlens.models.probes.pictures:UNCHANGED",
        "repeats": "fedlens.models.probes.labels:REPEATS",
        "label_share": "fedlens.models.probes.labels:LABEL_SHARE",
        "lacks_label": "fedlens.models.probes.labels:LACKS_LABEL",
        "better_after": "fedlens.models.probes.recognition:BETTER_AFTER",
        "confidence": "fedlens.models.probes.recognition:CONFIDENCE",
        "recognised": "fedlens.models.probes.recognition:RECOGNISED",
    },
)
