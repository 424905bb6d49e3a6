"""Diagnosis of real small runs: a planted fault is named, a clean run is left in peace."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import norm

import fedlens
from fedlens.cli import main
from fedlens.diagnosing import public_reference
from foundation.errors import WrongUse
from server.diagnosis.diagnose import diagnose
from server.diagnosis.expected import all_updates, halves
from server.diagnosis.fitting import q_values
from server.diagnosis.hypotheses import library
from server.diagnosis.inquiry import Inquiry, Observed
from server.diagnosis.reference import Reference
from server.kept_releases import kept_releases
from simulations.federation.apps import node_users

IMAGES = 800
WARMUP = {
    "schedule": "warmup",
    "data.users": 400,
    "data.records_per_user": 10,
    "data.samples_per_user": 10,
    "privacy.delta": 1e-4,
    "privacy.fixed_seed": 5,
    "tasks.warmup.noise_multiplier": 1.5,
    "tasks.warmup.generator_steps": 1,
    "generator.width": 8,
    "generator.batch": 20,
    "release.samples": 10,
    "release.strip": 1,
    "release.agreement": 0.0,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one warm-up each, by the fault that was planted."""
    made = {}

    def run(fault):
        if fault not in made:
            path = tmp_path_factory.mktemp("diagnosis") / "run"
            settings = {**WARMUP, "data.fault": fault}
            made[fault] = fedlens.simulate("demo", out=path, settings=settings, student=False)
        return made[fault]

    return run


@pytest.fixture(autouse=True)
def fewer_pairs(monkeypatch):
    """The library with a tenth of the pairs of classes, which are alike."""

    def fewer(shape, classes):
        every = library(shape, classes)
        return [one for one in every if len(one.variant.chosen) < 2 or 2 in one.variant.chosen]

    monkeypatch.setattr("server.diagnosis.diagnose.library", fewer)
    monkeypatch.setattr("server.diagnosis.power.library", fewer)


def reference(run, images=IMAGES):
    return public_reference("embedded", run.config, images)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "name"),
    [("rotate90:0.3", "rotate90"), ("swap_labels:0.4:classes=2,6", "swap_labels")],
)
def test_a_planted_fault_is_found_and_named_with_its_share(runs, planted, name):
    found = fedlens.diagnose(runs(planted), images=IMAGES)
    share = float(planted.split(":")[1])
    assert found.reference.fits and found.findings[0].fault == name
    best = found.findings[0]
    assert best.low <= share <= best.high and abs(best.share - share) < 0.1
    assert best.q_value < 1e-6
    assert best.classes == ((2, 6) if name == "swap_labels" else tuple(range(10)))
    assert found.smallest_detectable[name] < share


@pytest.mark.slow
def test_a_clean_run_has_no_finding_and_says_what_could_have_been_seen(runs, capsys):
    arguments = ["diagnose", str(runs("").path), "--images", str(IMAGES), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["findings"] == [] and found["reference"]["fits"]
    assert found["omnibus"]["p_value"] > 0.01
    assert 0 < found["smallest_detectable"]["rotate90"] < 0.3
    assert (runs("").path / "pictures" / "diagnosis.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_reference_of_another_kind_is_noticed_and_nothing_is_claimed(runs):
    run = runs("")
    own = reference(run)
    coarse = torch.nn.functional.interpolate(own.images, size=(8, 8), mode="area")
    thick = torch.nn.functional.interpolate(coarse, size=(28, 28), mode="bilinear") * 1.6 + 0.6
    other = Reference("coarse scans", thick.clamp(-1, 1), own.labels, own.classes)
    found = diagnose(kept_releases(run.path), other)
    assert not found.reference.fits and found.findings == ()
    assert "another kind" in found.reference.why


@pytest.mark.slow
def test_a_fault_in_some_classes_is_told_from_one_in_all(runs):
    found = fedlens.diagnose(runs("invert:0.4:classes=1,4"), images=IMAGES)
    assert found.findings[0].fault == "invert" and found.findings[0].classes == (1, 4)
    assert found.findings[0].low <= 0.4 <= found.findings[0].high


@pytest.mark.slow
def test_an_earlier_run_stands_for_public_data(runs):
    before, after = kept_releases(runs("").path), kept_releases(runs("rotate90:0.3").path)
    found = diagnose(after, reference(runs("")), before=before)
    assert found.findings[0].fault == "rotate90"
    assert found.findings[0].low <= 0.3 <= found.findings[0].high


def test_expected_releases_are_what_real_nodes_send(runs):
    """With the users' own records as reference and no noise, nothing is left but the noise."""
    run = runs("")
    kept = kept_releases(run.path)
    data = users_data(run)
    inquiry = Inquiry(Observed(tuple(kept), 400), data, 10)
    rest = inquiry._observed.value - inquiry._sound.mean(0)
    assert abs(inquiry.size - 1) < 0.02
    assert abs(rest.mean()) < 0.05 and 0.97 < rest.std() < 1.05


def users_data(run):
    held = [node_users(run.config, number) for number in range(2)]
    data = [users.user(place) for users in held for place in range(len(users))]
    images = torch.cat([one.images for one in data])
    return Reference("users", images, torch.cat([one.labels for one in data]), 10)


def test_exchanged_names_move_blocks_as_the_nodes_code_does(runs):
    kept, data = kept_releases(runs("").path), reference(runs(""), 200)
    swap = next(one for one in library((1, 28, 28), 10) if one.fault.name == "swap_labels")
    inquiry = Inquiry(Observed(tuple(kept), 400), data, 10)
    inquiry.add([swap])
    slow = halves(all_updates(inquiry._users.under(swap), tuple(kept), 10))
    assert np.allclose(inquiry._means[0].one, slow.one, atol=1e-4)
    assert np.allclose(inquiry._means[0].other, slow.other, atol=1e-4)


def test_q_values_are_benjamini_and_yekutielis():
    p = np.array([0.2, 0.001, 0.03])
    harmonic = 1 + 1 / 2 + 1 / 3
    wanted = [0.2 * harmonic, 0.001 * 3 * harmonic, 0.03 * 3 / 2 * harmonic]
    assert np.allclose(q_values(p), wanted)
    assert (q_values(norm.sf(np.zeros(5))) == 1).all()


def test_amounts_between_those_of_the_library_are_looked_at():
    tilt = next(one for one in library((1, 28, 28), 10) if one.said.startswith("tilted, 20"))
    amounts = sorted(one.variant.amount for one in tilt.between())
    assert amounts == [15.0, 17.5, 23.75, 27.5]


def test_what_cannot_be_diagnosed_is_refused_with_the_mend(runs):
    run = runs("")
    with pytest.raises(WrongUse, match="kept no release of a task of kind 'frozen'"):
        diagnose([], reference(run))
    small = Reference("ten", torch.zeros(10, 1, 28, 28), torch.arange(10), 10)
    with pytest.raises(WrongUse, match="give at least 200 images"):
        diagnose(kept_releases(run.path), small)
    wide = Reference("wide", torch.zeros(900, 1, 32, 32), torch.arange(900) % 10, 10)
    with pytest.raises(WrongUse, match="take data of the same kind"):
        diagnose(kept_releases(run.path), wide)
    with pytest.raises(WrongUse, match="images 0"):
        fedlens.diagnose(run, images=0)


@pytest.mark.slow
def test_power_says_beforehand_that_more_users_and_more_budget_see_smaller_shares(capsys):
    flags = ["--users", "500,2000", "--epsilon", "0.5,4", "--images", "400", "--json"]
    assert main(["power", *flags]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    shares = {(r["users"], r["epsilon"]): r["share"] for r in rows if r["fault"] == "rotate90"}
    assert shares[500, 0.5] is None or shares[500, 0.5] > shares[500, 4.0]
    assert shares[500, 4.0] > shares[2000, 4.0] > 0
    assert main(["power", "--users", "none"]) == 2
