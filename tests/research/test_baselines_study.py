"""The study of simpler releases: what they do, where they keep a use, and who reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedlens.privatizers.attacks.attack_runs import released
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens_research.filters.simple import Blur, Components, Discriminants, PixelNoise
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.study import run_seeds
from fedlens_research.metrics.kernel_reader import Labels, Pictures, read
from fedlens_research.papers import BASELINES
from fedlens_research.papers.baselines import BaselinesSettings, Found, Reading, at_use

SMALL: dict[str, object] = {
    "data": ["made"], "reading_steps": 30, "copying_steps": 30, "steps": 20, "fader_steps": 10,
    "reader_steps": 20, "noise": [1.0, 40.0], "blur": [4.0],
    "components": [0.5, 40.0], "components_kept": 8,
    "discriminants": [0.0], "fader": [0.0],
}  # fmt: skip


def settings(**changes: object) -> BaselinesSettings:
    found: BaselinesSettings = BASELINES.settings(quick=True, changes={**SMALL, **changes})
    return found


def faces(people: int, first: int) -> PrivateData:
    """Three pictures a person: one half is bright for the use, an edge for the secret."""
    source = torch.Generator().manual_seed(first)
    count = 3 * people
    use, secret = torch.randint(0, 2, (2, count), generator=source)
    records = 0.2 * torch.randn(count, 1, 16, 16, generator=source)
    records[:, :, :8] += 0.5 * use[:, None, None, None]
    records[:, :, :, :3] += 0.5 * secret[:, None, None, None]
    return PrivateData(
        name="made", records=records.clamp(-1, 1), utility=use, sensitive=secret, side=None,
        owners=first + torch.arange(count) // 3, utility_classes=2, sensitive_classes=2,
        low=-1.0, high=1.0,
    )  # fmt: skip


def right(answers: Tensor, truth: Tensor) -> float:
    return float((answers.argmax(1) == truth).double().mean())


def test_a_reader_learns_from_some_people_and_reads_others() -> None:
    known, shown = faces(60, 0), faces(40, 1000)
    kinds = [Labels(known.utility, 2), Labels(known.sensitive, 2)]
    pictures = Pictures(known.records, known.owners)
    used, hidden = read(pictures, kinds, shown.records, 60, 0)
    for answers, truth in ((used, shown.utility), (hidden, shown.sensitive)):
        kernel, network = answers
        assert right(kernel, truth) > 0.95 and right(network, truth) > 0.9
        assert torch.allclose(kernel.sum(1), torch.ones(len(shown)), atol=1e-5)


def test_simple_releases_do_what_they_say() -> None:
    data = faces(40, 0)
    still = released(PixelNoise(data.shape, 0.0), data, 0).records
    assert torch.equal(still, data.records)
    noisy = released(PixelNoise(data.shape, 0.7), data, 0).records - data.records
    assert float(noisy.std()) == pytest.approx(0.7, rel=0.02)
    blurred = released(Blur(3.0), data, 0).records
    assert float(blurred.std()) < float(data.records.std())
    level = (blurred + 1) * 255 / 2
    assert torch.allclose(level, level.round(), atol=1e-3), "grey levels, as a picture has"
    assert torch.allclose(Blur(3.0)(torch.full((1, 1, 16, 16), 0.2), noisy[:1]),
                          torch.full((1, 1, 16, 16), 0.2), atol=1 / 255)  # fmt: skip
    few = released(Components(data.records, 2, 0.0), data, 0).records
    rows = few.flatten(1) - few.flatten(1).mean(0)
    assert int(torch.linalg.matrix_rank(rows, rtol=1e-3)) == 2, "two components and no more"


def test_discriminants_tell_the_use_and_next_to_nothing_else() -> None:
    data = faces(60, 0)
    sent = released(Discriminants(data.records, data.utility, 2, 0.0), data, 0).records.flatten(1)
    rows = sent - sent.mean(0)
    assert int(torch.linalg.matrix_rank(rows, rtol=1e-3)) == 1
    line = rows @ torch.linalg.svd(rows, full_matrices=False).Vh[0]
    ends = [line[data.utility == one].mean() for one in (0, 1)]
    apart = [line[data.sensitive == one].mean() for one in (0, 1)]
    assert abs(ends[0] - ends[1]) > 4 * abs(apart[0] - apart[1])


def reading(use: float, secret: float) -> Reading:
    return Reading(use, secret, secret, secret)


def test_a_secret_is_read_where_the_use_is_the_same() -> None:
    path = [Found(0.0, reading(0.9, 0.8)), Found(1.0, reading(0.8, 0.7)),
            Found(2.0, reading(0.6, 0.5))]  # fmt: skip
    row = at_use(path, 0.7)
    assert row["secret"] == pytest.approx(0.6) and row["strength"] == pytest.approx(1.5)
    assert row["use"] == pytest.approx(0.7) and row["reached"] is True
    less = at_use(path, 0.95)
    assert less["secret"] == 0.8 and less["reached"] is False, "it keeps less from the start"
    never = at_use(path, 0.5)
    assert never["reached"] is False and never["use"] == 0.6


def test_every_release_has_a_row_beside_the_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Split(faces(30, 0), faces(30, 1000), faces(40, 2000))
    monkeypatch.setattr("fedlens_research.papers.baselines.load_private", lambda *_: made)
    rows = run_seeds(
        BASELINES, settings(), seeds=(0,), data_dir=None, out=tmp_path, report=lambda _: None
    )
    by_name = {row["sent"]: row for row in rows}
    assert list(by_name) == ["the picture", "the true use alone", "the answer alone", "filter",
                             "noise", "blur", "components", "discriminants", "fader"]  # fmt: skip
    picture, ours = by_name["the picture"], by_name["filter"]
    assert picture["secret"] > 0.9 and picture["lost_points"] == 0.0
    alone = by_name["the true use alone"]["secret"]
    for name in ("noise", "components"):
        assert by_name[name]["use"] == pytest.approx(ours["use"]) or not by_name[name]["reached"]
        assert by_name[name]["above_alone"] == pytest.approx(by_name[name]["secret"] - alone)


def test_settings_that_say_nothing_are_refused() -> None:
    good = settings()
    with pytest.raises(StudyError, match="rising"):
        replace(good, noise=(2.0, 1.0))
    with pytest.raises(StudyError, match="name at least one source"):
        replace(good, data=())
    with pytest.raises(StudyError, match="'moon' is unknown"):
        replace(good, baselines=("moon",))
