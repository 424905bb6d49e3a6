"""All ways of exporting labels, and what each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedlens.foundation.registry import Registry
from fedlens.store.exporters.samples import LabelledSample


class Exporter(Protocol):
    """One way to write a project's labels."""

    @property
    def title(self) -> str:
        """What people call it."""

    @property
    def suffix(self) -> str:
        """End of the file's name, with its dot."""

    @property
    def media_type(self) -> str:
        """Such as ``text/csv``."""

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """The file's content; ``samples`` in the order in which people answered."""


EXPORTERS: Registry[Exporter] = Registry(
    "exporter",
    "fedlens.exporters",
    {
        "csv": "fedlens.store.exporters.tables:TABLE",
        "zip": "fedlens.store.exporters.tables:ARCHIVE",
        "label-studio": "fedlens.store.exporters.label_studio:LABEL_STUDIO",
        "huggingface": "fedlens.store.exporters.huggingface:HUGGING_FACE",
        "webdataset": "fedlens.store.exporters.webdataset:WEB_DATASET",
    },
)
"""All exporters by name; one of another package is an entry point of that group."""
