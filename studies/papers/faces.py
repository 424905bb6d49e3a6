"""Minibatches of faces: moved a little, and faces of no real person among them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from client.datasets.spec import Augmentation
from privatizers.protocol import Batch
from simulations.students.augmentation import affine

SHAKEN = Augmentation("affine", rotation=0.05, scale=0.04, shear=0.02, shift=0.04)
"""How far a face is moved."""


def shaken(batch: Batch, mixed: float, generator: torch.Generator) -> Batch:
    """Every face moved a little; some become faces of no real person, labelled private.

    A filter is to lose people whom it never saw. It sees some: blends of two people, and faces
    whose lower or right half is another person's.

    Args:
        batch: faces [n, c, h, w] with the choice of each.
        mixed: share that becomes a face of no real person.
        generator: CPU generator of all that is drawn.
    """
    faces = affine(batch.records, SHAKEN, generator)
    count = int(mixed * len(faces))
    if count == 0 or batch.choice is None:
        return replace(batch, records=faces)
    others = faces[torch.randperm(len(faces), generator=generator)[:count]]
    strangers = _strangers(faces[:count], others, generator)
    return replace(
        batch,
        records=torch.cat([strangers, faces[count:]]),
        choice=torch.cat([torch.ones(count, 1), batch.choice[count:]]),
    )


def _strangers(faces: Tensor, others: Tensor, generator: torch.Generator) -> Tensor:
    """Blends for about a half of the faces, patched ones for the others."""
    share = 0.35 + 0.3 * torch.rand(len(faces), 1, 1, 1, generator=generator)
    blends = torch.lerp(faces, others, share)
    patched = faces.clone()
    height, breadth = faces.shape[2] // 2, faces.shape[3] // 2
    patched[::2, :, height:] = others[::2, :, height:]
    patched[1::2, :, :, breadth:] = others[1::2, :, :, breadth:]
    blended = torch.rand(len(faces), 1, 1, 1, generator=generator) < 0.5
    return torch.where(blended, blends, patched)
