"""Values as strict JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """The value with null for numbers that are not finite, and lists for tuples, at any depth."""
    if isinstance(value, Mapping):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [json_value(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
