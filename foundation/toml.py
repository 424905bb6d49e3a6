"""TOML of others, read in a time that its size bounds, which Python's `tomllib` does not do."""

from __future__ import annotations

import re
import tomllib
from typing import Any

LARGEST_TOML = 1 << 20
"""Characters."""
MOST_PARTS = 64
"""Of a key ``a.b.c``: reading one takes time, and memory, by the square of its parts."""
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_PARTS},}}")


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML text says.

    Raises:
        tomllib.TOMLDecodeError: it is none, or is longer, deeper or has a longer key or number than
            any settings have.
    """
    if len(text) > LARGEST_TOML:
        raise tomllib.TOMLDecodeError(f"{len(text)} characters are over {LARGEST_TOML}")
    if _LONG_KEY.search(text):
        raise tomllib.TOMLDecodeError(f"a key has over {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, nested lists
        raise tomllib.TOMLDecodeError(str(error)) from None
