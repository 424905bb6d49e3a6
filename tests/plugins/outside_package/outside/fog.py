"""A fault: images in a fog."""

from __future__ import annotations

from fedlens.models.faults.protocol import Fault

FOG = Fault(
    "fog",
    "in a fog",
    image=lambda images, setting: images + setting.amount * (1 - images),
    amounts=(0.5,),
    measure="of the way to white",
    otherwise="Mornings by a river.",
)
