"""Label Studio's own JSON: a task for each sample, an annotation for each answer.

The images travel inside as data URIs, so that a project can be made of the file alone. In Label
Studio the labelling interface is ``<Image name="image" value="$image"/>`` with
``<Choices name="label" toName="image">``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from server.store.exporters.registry import Exporter
from server.store.exporters.samples import POST_PROCESSING, LabelledSample


class _LabelStudioExporter:
    title, suffix, media_type = "Label Studio (JSON)", ".json", "application/json"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """A list of tasks with their annotations."""
        tasks: dict[int, dict[str, Any]] = {}
        for number, answer in enumerate(samples, start=1):
            task = tasks.setdefault(answer.sample_id, _task(answer))
            task["annotations"].append(_annotation(number, answer))
        return json.dumps(list(tasks.values()), ensure_ascii=False, allow_nan=False).encode()


def _task(answer: LabelledSample) -> dict[str, Any]:
    return {
        "id": answer.sample_id,
        "data": {
            "image": f"data:image/png;base64,{base64.b64encode(answer.png).decode()}",
            "sample_sha256": answer.sha256,
            "run_id": answer.run_id,
            "round": answer.round,
            "requested_class": answer.requested_class,
            "final_label": answer.final_label,
            "provenance": answer.provenance,
            "dp_epsilon": _finite(answer.dp_epsilon),
            "delta_dp": answer.delta_dp,
            "bayesian_epsilon": _finite(answer.bayesian_epsilon),
            "delta_bayesian": answer.delta_bayesian,
            "guarantee": answer.guarantee,
            "post_processing": POST_PROCESSING,
        },
        "annotations": [],
    }


def _annotation(number: int, answer: LabelledSample) -> dict[str, Any]:
    chosen = [] if answer.label is None else [answer.label, *answer.more_labels]
    result = []
    if chosen:
        result.append(_result(f"label-{number}", "label", "choices", {"choices": chosen}))
    if answer.note:
        result.append(_result(f"note-{number}", "note", "textarea", {"text": [answer.note]}))
    return {
        "id": number,
        "completed_by": {"email": answer.annotator},
        "result": result,
        "was_cancelled": answer.label is None,
        "ground_truth": answer.gold_label is not None and answer.gold_label == answer.label,
        "lead_time": None if answer.lead_ms is None else answer.lead_ms / 1000,
        "created_at": answer.created_at.isoformat(),
    }


def _result(number: str, name: str, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "from_name": name, "to_name": "image", "type": kind, "value": value}


def _finite(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


LABEL_STUDIO: Exporter = _LabelStudioExporter()
