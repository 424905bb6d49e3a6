"""A WebDataset: a tar file with ``<id>.png``, ``<id>.json`` and ``<id>.txt`` for each sample."""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fedlens.store.exporters.registry import Exporter
from fedlens.store.exporters.samples import POST_PROCESSING, LabelledSample, numbered


class _WebDatasetExporter:
    title, suffix, media_type = "WebDataset (tar)", ".tar", "application/x-tar"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """Each sample once; the text is its final label, the JSON everything that is known."""
        answers: dict[int, list[LabelledSample]] = defaultdict(list)
        for one in numbered(samples):
            answers[one.sample_id].append(one)
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for sample_id, said in answers.items():
                text = json.dumps(_described(said), ensure_ascii=False, allow_nan=False)
                for end, part in (
                    ("json", text.encode()),
                    ("png", said[0].png),
                    ("txt", (said[0].final_label or "").encode()),
                ):
                    entry = tarfile.TarInfo(f"{sample_id:09d}.{end}")
                    entry.size = len(part)
                    archive.addfile(entry, io.BytesIO(part))
        return content.getvalue()


def _described(said: list[LabelledSample]) -> dict[str, Any]:
    first = said[0]
    return {
        "label": first.final_label,
        "answers": [{"annotator": one.annotator, "label": one.label} for one in said],
        "sha256": first.sha256,
        "run_id": first.run_id,
        "round": first.round,
        "requested_class": first.requested_class,
        "provenance": first.provenance,
        "dp_epsilon": None if math.isinf(first.dp_epsilon) else first.dp_epsilon,
        "delta_dp": first.delta_dp,
        "bayesian_epsilon": None if math.isinf(first.bayesian_epsilon) else first.bayesian_epsilon,
        "delta_bayesian": first.delta_bayesian,
        "guarantee": first.guarantee,
        "post_processing": POST_PROCESSING,
    }


WEB_DATASET: Exporter = _WebDatasetExporter()
