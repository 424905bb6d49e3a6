"""A table of answers, alone or with the images in a ZIP file."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Sequence

from fedlens.store.exporters.registry import Exporter
from fedlens.store.exporters.samples import LabelledSample, statements

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class _CsvExporter:
    title, suffix, media_type = "Table (CSV)", ".csv", "text/csv"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """One line an answer, without pixels, each with both privacy statements."""
        names = [name for name in LabelledSample.__dataclass_fields__ if name != "png"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(names)
        writer.writerows([_cell(getattr(sample, name)) for name in names] for sample in samples)
        return text.getvalue().encode()


class _ZipExporter:
    title, suffix, media_type = "Table and images (ZIP)", ".zip", "application/zip"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """``labels.csv``, the privacy statements, and each sample once as ``images/<id>.png``."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("labels.csv", TABLE.export(samples))
            archive.writestr("PRIVACY.md", statements(samples))
            for sample_id, png in {one.sample_id: one.png for one in samples}.items():
                archive.writestr(f"images/{sample_id}.png", png)
        return content.getvalue()


def _cell(value: object) -> object:
    """A value as a cell; texts that a spreadsheet would run as a formula get a quote before.

    So do those with a quote there: what is read back is what was written.
    """
    if isinstance(value, tuple):
        # A name may hold what stands between names.
        value = "; ".join(re.sub(r"[;\\]", r"\\\g<0>", one) for one in value)
    return f"'{value}" if isinstance(value, str) and _is_risky(value) else value


def unquoted(text: str) -> str:
    """A cell as it was before it got a quote."""
    return text[1:] if text.startswith("'") and _is_risky(text[1:]) else text


def _is_risky(text: str) -> bool:
    return text.startswith(_FORMULA) or text.lstrip().startswith((*_FORMULA, "'"))


TABLE: Exporter = _CsvExporter()
ARCHIVE: Exporter = _ZipExporter()
