"""A probe of another package that forgot to declare its range."""

from __future__ import annotations

from fedlens.models.probes.protocol import Probe

BARE = Probe("bare", "whatever", lambda own, argument: own.images.sum((1, 2, 3)))
