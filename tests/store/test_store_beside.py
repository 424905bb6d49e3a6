"""Labels given at an open dashboard, while people run commands on its store and some are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.deployed_faults.dashboards import commands_beside


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.law("labels: no answer is lost or counted twice")
def test_every_label_called_saved_is_there_for_others_whatever_is_run(
    empty_url: str, tmp_path: Path
) -> None:
    own = "" if empty_url.startswith("sqlite") else empty_url
    found = commands_beside(4, lambda: (tmp_path, own))
    assert found.problems == [] and found.clean == found.faults == 4
