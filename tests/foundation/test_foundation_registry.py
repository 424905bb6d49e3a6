"""Plug-ins by name: ours, another package's, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import PluginError, Registry

OWN = {"plus": "operator:add", "minus": "operator:sub"}
ENTRY_POINTS = """
[fedlens.sums]
times = operator:mul
minus = operator:neg
broken = operator:absent
"""


@pytest.fixture
def registry() -> Registry[object]:
    return Registry("sum", "fedlens.sums", OWN)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with three plug-ins."""
    metadata = tmp_path / "outside_sums-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-sums\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)


def test_ours_are_loaded_by_name(registry: Registry[object]) -> None:
    assert list(registry) == ["plus", "minus"]
    assert registry["plus"](2, 3) == 5  # type: ignore[operator]


def test_an_unknown_name_is_refused_with_those_there_are(registry: Registry[object]) -> None:
    with pytest.raises(WrongUse, match=r"no sum 'pluss': choose one of plus, minus; did you mean"):
        registry["pluss"]
    assert "pluss" not in registry


@pytest.mark.usefixtures("outside")
def test_another_package_s_are_found_like_ours(registry: Registry[object]) -> None:
    assert set(registry) == {"plus", "minus", "times", "broken"}
    assert registry["times"](2, 3) == 6  # type: ignore[operator]


@pytest.mark.usefixtures("outside")
def test_a_name_that_is_taken_and_a_plug_in_that_fails_are_named(
    registry: Registry[object],
) -> None:
    with pytest.raises(PluginError, match=r"'minus' exists more than once: uninstall operator:neg"):
        registry["minus"]
    with pytest.raises(PluginError, match=r"'broken' \(operator:absent\) cannot be loaded"):
        registry["broken"]
    assert registry["plus"](1, 1) == 2  # type: ignore[operator]


def test_a_stand_in_lasts_as_long_as_its_context(registry: Registry[object]) -> None:
    with registry.replaced("plus", "stand-in"):
        assert registry["plus"] == "stand-in"
    assert registry["plus"](1, 1) == 2  # type: ignore[operator]
