"""A run that takes a second."""

from __future__ import annotations

import pytest
from tiny import TINY

import fedlens


@pytest.fixture(scope="session")
def tiny() -> dict[str, object]:
    """Its settings, over the preset ``demo``."""
    return dict(TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny) -> fedlens.Run:
    """It, trained once."""
    out = tmp_path_factory.mktemp("api") / "run"
    return fedlens.simulate("demo", out=out, settings=tiny, student=False)
