"""An exporter: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedlens.store.exporters import LabelledSample


class Lines:
    """Ids and labels alone."""

    title, suffix, media_type = "Lines (JSON)", ".jsonl", "application/jsonl"

    def export(self, samples: Sequence[LabelledSample]) -> bytes:
        """In the order in which people answered."""
        lines = [json.dumps({"sample": one.sample_id, "label": one.label}) for one in samples]
        return "".join(f"{line}\n" for line in lines).encode()


LINES = Lines()
