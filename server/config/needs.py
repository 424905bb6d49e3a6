"""What tasks give to those after them: settings of a task say what it requires and provides.

The words are open: a task of another package may provide something of its own, and require it.
"""

from __future__ import annotations

GENERATOR_LOSS = "generator loss"
"""A loss that the generator learns from after each release: its settings are a `CriticConfig`."""
FEATURES = "features"
"""Fixed random features, and where each class's mean lies in them."""
LABELS = "labels"
"""A label model, which guides the generator, filters samples and labels images: its settings are
an `AnnotatorConfig`."""
SCALES = "scales of frequencies"
"""Centre and scale of images' lowest frequencies."""
PRIVATIZER = "privatizer"
"""The filter that nodes run in all later tasks. The task's state has its weights as ``mean``,
float32 [n], and where it was fitted a `LeakageEstimate` as ``reading``."""
CARD = "data card"
"""Histograms of users' pictures, which people read; no task builds on them."""

ONE_AT_MOST = frozenset({LABELS, SCALES, PRIVATIZER, CARD})
"""What no two tasks of a run may provide."""
