"""What a fault looks like: carried out on synthetic samples, in a process of its own.

    python -m fedlens.dashboard.faults.looks < question.json > pictures.json

Apart from the dashboard's process, because it loads the networks' library.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import Fault, FaultSetting
from fedlens.models.shapes import as_pixels, from_pixels


def main() -> None:
    """Read findings and samples from standard input, write pictures to standard output."""
    asked = json.load(sys.stdin)
    json.dump({one["fault"]: pictures(one, asked) for one in asked["findings"]}, sys.stdout)


def pictures(finding: dict[str, Any], asked: dict[str, Any]) -> list[dict[str, str]]:
    """Samples before and after the fault; none where it changes which records there are."""
    if finding["fault"] not in FAULTS:
        return []
    fault: Fault = FAULTS[finding["fault"]]
    chosen = tuple(finding["classes"])
    every = len(chosen) in (0, asked["classes"])
    shown = [one for one in asked["samples"] if every or one["label"] in chosen][: asked["most"]]
    if not shown:
        return []
    planes = np.stack([_plane(base64.b64decode(one["png"])) for one in shown])
    labels = torch.tensor([one["label"] for one in shown])
    setting = FaultSetting(asked["classes"], () if every else chosen, finding["amount"] or 0.0)
    images, named = fault.applied(from_pixels(planes), labels, setting)
    if len(images) != len(shown):
        return []
    after = as_pixels(images)
    return [
        {
            "before": one["png"],
            "after": _base64(after[place]),
            "label": str(one["label"]) if asked["classes"] > 1 else "",
            "named": str(int(named[place])) if asked["classes"] > 1 else "",
        }
        for place, one in enumerate(shown)
    ]


def _plane(png: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """uint8 [channels, height, width]."""
    pixels = np.asarray(Image.open(io.BytesIO(png)))
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def _base64(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    plane = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(plane)).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


if __name__ == "__main__":
    main()
