"""A data set as Hugging Face's hub takes it: Parquet with the images in it, and a card."""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fedlens.store.errors import StoreError
from fedlens.store.exporters.registry import Exporter
from fedlens.store.exporters.samples import LabelledSample, numbered, statements

_TABLE = "data/train-00000-of-00001.parquet"
_TEXTS = ("label", "sha256", "run_id", "provenance")


class _HuggingFaceExporter:
    title, suffix = "Hugging Face data set (Parquet)", ".huggingface.zip"
    media_type = "application/zip"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """A ZIP of ``README.md`` (the card) and one row a sample; unpack it into a repository."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("README.md", _card(samples))
            archive.writestr(_TABLE, _parquet(numbered(samples)))
        return content.getvalue()


def _parquet(samples: Sequence[LabelledSample]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise StoreError("Parquet needs the package pyarrow: pip install pyarrow") from None
    votes = pa.list_(pa.struct({"annotator": pa.string(), "label": pa.string()}))
    fields = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    fields |= dict.fromkeys(_TEXTS, pa.string())
    fields |= {"requested_class": pa.int64(), "round": pa.int64(), "answers": votes}
    fields |= dict.fromkeys(_FIGURES, pa.float64())
    schema = pa.schema(fields, metadata={"huggingface": json.dumps(_features())})
    table = pa.Table.from_pylist(_rows(samples), schema=schema)
    content = io.BytesIO()
    pq.write_table(table, content)
    return content.getvalue()


_FIGURES = ("dp_epsilon", "delta_dp", "bayesian_epsilon", "delta_bayesian")


def _rows(samples: Sequence[LabelledSample]) -> list[dict[str, Any]]:
    answers: dict[int, list[LabelledSample]] = defaultdict(list)
    for one in samples:
        answers[one.sample_id].append(one)
    return [
        {
            "image": {"bytes": said[0].png, "path": f"{sample_id}.png"},
            "label": said[0].final_label,
            "sha256": said[0].sha256,
            "run_id": said[0].run_id,
            "provenance": said[0].provenance,
            "requested_class": said[0].requested_class,
            "round": said[0].round,
            "answers": [{"annotator": one.annotator, "label": one.label} for one in said],
        }
        | {name: getattr(said[0], name) for name in _FIGURES}
        for sample_id, said in answers.items()
    ]


def _features() -> dict[str, Any]:
    """The columns as the package ``datasets`` describes them in a Parquet file."""
    text = {"dtype": "string", "_type": "Value"}
    columns: dict[str, Any] = {"image": {"_type": "Image"}} | dict.fromkeys(_TEXTS, text)
    columns |= {key: {"dtype": "int64", "_type": "Value"} for key in ("requested_class", "round")}
    columns["answers"] = [{"annotator": text, "label": text}]
    columns |= {key: {"dtype": "float64", "_type": "Value"} for key in _FIGURES}
    return {"info": {"features": columns}}


def _card(samples: Sequence[LabelledSample]) -> str:
    count = len({one.sample_id for one in samples})
    size = (
        "n<1K"
        if count < 1000
        else "1K<n<10K"
        if count < 10_000
        else "10K<n<100K"
        if count < 100_000
        else "100K<n<1M"
    )
    labels = sorted({one.final_label for one in samples if one.final_label})
    return "\n".join(
        (
            "---",
            "task_categories:",
            "- image-classification",
            "tags:",
            "- synthetic",
            "- differential-privacy",
            "size_categories:",
            f"- {size}",
            "configs:",
            "- config_name: default",
            "  data_files:",
            "  - split: train",
            "    path: data/train-*",
            "---",
            "# Labelled synthetic images",
            "",
            f"{count} images drawn from a federated generator, with {len(samples)} answers of "
            f"{len({one.annotator for one in samples})} annotators. `label` is a reviewer's "
            "decision, or else the majority's; `answers` are all, with numbers for names.",
            "",
            f"Labels: {', '.join(json.dumps(one, ensure_ascii=False) for one in labels) or 'none'}",
            "",
            "## Privacy",
            "",
            statements(samples),
        )
    )


HUGGING_FACE: Exporter = _HuggingFaceExporter()
