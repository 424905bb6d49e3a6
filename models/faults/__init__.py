"""What can be wrong with users' data: a library of faults, each a pure function of records.

A simulation plants them; a diagnosis asks of each how well it explains what a run has released.
Adding one is a `Fault` and a line here, or an entry point of another package. Faults of images that
come one after the other have a name too: ``rotate90+dim``.
"""

from __future__ import annotations

from fedlens.foundation.registry import Registry
from fedlens.models.faults.library import FaultLibrary
from fedlens.models.faults.protocol import Fault

FAULTS: Registry[Fault] = FaultLibrary(
    "fault",
    "fedlens.faults",
    {
        "rotate90": "fedlens.models.faults.geometry:ROTATE90",
        "rotate180": "fedlens.models.faults.geometry:ROTATE180",
        "rotate270": "fedlens.models.faults.geometry:ROTATE270",
        "mirror": "fedlens.models.faults.geometry:MIRROR",
        "upside_down": "fedlens.models.faults.geometry:UPSIDE_DOWN",
        "tilt": "fedlens.models.faults.geometry:TILT",
        "shift_right": "fedlens.models.faults.geometry:SHIFT_RIGHT",
        "shift_down": "fedlens.models.faults.geometry:SHIFT_DOWN",
        "scale": "fedlens.models.faults.geometry:SCALE",
        "crop": "fedlens.models.faults.geometry:CROP",
        "invert": "fedlens.models.faults.tones:INVERT",
        "blur": "fedlens.models.faults.tones:BLUR",
        "sharpen": "fedlens.models.faults.tones:SHARPEN",
        "dim": "fedlens.models.faults.tones:DIM",
        "gamma": "fedlens.models.faults.tones:GAMMA",
        "quantise": "fedlens.models.faults.tones:QUANTISE",
        "noise": "fedlens.models.faults.tones:NOISE",
        "saturation": "fedlens.models.faults.tones:SATURATION",
        "swap_channels": "fedlens.models.faults.tones:SWAP_CHANNELS",
        "stuck_column": "fedlens.models.faults.defects:STUCK_COLUMN",
        "stuck_row": "fedlens.models.faults.defects:STUCK_ROW",
        "occlude": "fedlens.models.faults.defects:OCCLUDE",
        "swap_labels": "fedlens.models.faults.labels:SWAP_LABELS",
        "shift_labels": "fedlens.models.faults.labels:SHIFT_LABELS",
        "random_labels": "fedlens.models.faults.labels:RANDOM_LABELS",
        "missing_class": "fedlens.models.faults.labels:MISSING_CLASS",
        "new_class": "fedlens.models.faults.defects:NEW_CLASS",
        "frequent_class": "fedlens.models.faults.labels:FREQUENT_CLASS",
        "duplicates": "fedlens.models.faults.labels:DUPLICATES",
    },
)
