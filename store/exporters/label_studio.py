"""Label Studio's own JSON: a task for each sample, an annotation for each answer.

The images travel inside as data URIs, so that a project can be made of the file and its labelling
interface alone (`labelling_interface`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from fedlens.store.exporters.registry import Exporter
from fedlens.store.exporters.samples import POST_PROCESSING, LabelledSample
from fedlens.store.labelling import LabelRecord

IMAGE, LABEL, NOTE = "image", "label", "note"
"""What the interface calls its parts, and each result the part that it was given by."""


def labelling_interface(labels: Sequence[LabelRecord], *, several: bool) -> str:
    """The labelling interface under which Label Studio shows an export, as its XML.

    Args:
        labels: of the project.
        several: whether a sample may have more than one.
    """
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name=IMAGE, value=f"${IMAGE}")
    choice = "multiple" if several else "single"
    choices = ElementTree.SubElement(view, "Choices", name=LABEL, toName=IMAGE, choice=choice)
    for label in labels:
        ElementTree.SubElement(choices, "Choice", value=label.name, hotkey=label.key)
    ElementTree.SubElement(view, "TextArea", name=NOTE, toName=IMAGE)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


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
        result.append(_result(f"label-{number}", LABEL, "choices", {"choices": chosen}))
    if answer.note:
        result.append(_result(f"note-{number}", NOTE, "textarea", {"text": [answer.note]}))
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
    return {"id": number, "from_name": name, "to_name": IMAGE, "type": kind, "value": value}


def _finite(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


LABEL_STUDIO: Exporter = _LabelStudioExporter()
