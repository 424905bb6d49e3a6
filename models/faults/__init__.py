"""What can be wrong with users' data: a library of faults, each a pure function of records.

A simulation plants them; a diagnosis asks of each how well it explains what a run has released.
Adding one is a `Fault` and a line here, or an entry point of another package.
"""

from __future__ import annotations

from foundation.registry import Registry
from models.faults.protocol import Fault

FAULTS: Registry[Fault] = Registry(
    "fault",
    "fedlens.faults",
    {
        "rotate90": "models.faults.geometry:ROTATE90",
        "rotate180": "models.faults.geometry:ROTATE180",
        "rotate270": "models.faults.geometry:ROTATE270",
        "mirror": "models.faults.geometry:MIRROR",
        "upside_down": "models.faults.geometry:UPSIDE_DOWN",
        "tilt": "models.faults.geometry:TILT",
        "shift_right": "models.faults.geometry:SHIFT_RIGHT",
        "shift_down": "models.faults.geometry:SHIFT_DOWN",
        "scale": "models.faults.geometry:SCALE",
        "crop": "models.faults.geometry:CROP",
        "invert": "models.faults.tones:INVERT",
        "blur": "models.faults.tones:BLUR",
        "sharpen": "models.faults.tones:SHARPEN",
        "dim": "models.faults.tones:DIM",
        "gamma": "models.faults.tones:GAMMA",
        "quantise": "models.faults.tones:QUANTISE",
        "noise": "models.faults.tones:NOISE",
        "saturation": "models.faults.tones:SATURATION",
        "swap_channels": "models.faults.tones:SWAP_CHANNELS",
        "stuck_column": "models.faults.defects:STUCK_COLUMN",
        "stuck_row": "models.faults.defects:STUCK_ROW",
        "occlude": "models.faults.defects:OCCLUDE",
        "swap_labels": "models.faults.labels:SWAP_LABELS",
        "shift_labels": "models.faults.labels:SHIFT_LABELS",
        "random_labels": "models.faults.labels:RANDOM_LABELS",
        "missing_class": "models.faults.labels:MISSING_CLASS",
        "new_class": "models.faults.defects:NEW_CLASS",
        "frequent_class": "models.faults.labels:FREQUENT_CLASS",
        "duplicates": "models.faults.labels:DUPLICATES",
    },
)
