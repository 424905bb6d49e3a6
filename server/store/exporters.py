"""Labels on their way out of the store: one file for each way of exporting them."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from foundation.registry import Registry


@dataclass(frozen=True, kw_only=True)
class LabelledSample:
    """One answer in force about one synthetic sample, with where the sample comes from."""

    sample_id: int
    run_id: str
    round: int
    requested_class: int
    provenance: str
    """The label shown beside the sample, in words."""
    sha256: str
    """Of its pixels."""
    png: bytes
    label: str | None
    """``None`` where the annotator skipped the sample."""
    kind: str | None
    """Of the label: ``class``, ``unknown`` or ``artefact``."""
    annotator: str
    created_at: datetime
    """When the answer was given."""


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


class _CsvExporter:
    title, suffix, media_type = "Table (CSV)", ".csv", "text/csv"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """One line an answer, without pixels."""
        names = [name for name in LabelledSample.__dataclass_fields__ if name != "png"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(sample, name) for name in names] for sample in samples)
        return text.getvalue().encode()


class _ZipExporter:
    title, suffix, media_type = "Table and images (ZIP)", ".zip", "application/zip"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """The table as ``labels.csv``, and each sample once as ``images/<sample_id>.png``."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("labels.csv", TABLE.export(samples))
            for sample_id, png in {one.sample_id: one.png for one in samples}.items():
                archive.writestr(f"images/{sample_id}.png", png)
        return content.getvalue()


TABLE: Exporter = _CsvExporter()
ARCHIVE: Exporter = _ZipExporter()
EXPORTERS: Registry[Exporter] = Registry(
    "exporter",
    "fedlens.exporters",
    {"csv": "server.store.exporters:TABLE", "zip": "server.store.exporters:ARCHIVE"},
)
"""All exporters by name; one of another package is an entry point of that group."""
