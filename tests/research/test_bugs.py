"""The bug benchmark: honest splits, tallies by hand, trials that are never done twice, the page."""

from __future__ import annotations

import csv
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.cli import main
from fedlens.data.registry import load
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import FaultSetting, Variant
from fedlens.models.shapes import from_pixels
from fedlens_research.bugs import measuring, worlds
from fedlens_research.bugs.changes import CHANGES
from fedlens_research.bugs.drawing import DrawnDiagnosis, NoisyDraws
from fedlens_research.bugs.held import Crowd
from fedlens_research.bugs.naming import naming_rows
from fedlens_research.bugs.outsiders import OUTSIDERS, planted
from fedlens_research.bugs.plan import (
    QUICK,
    BugPlan,
    BugTrial,
    foreign_to,
    found_data,
    may_be_planted,
    trials_of,
)
from fedlens_research.bugs.results import BugResults, by_share, measured_share
from fedlens_research.bugs.study import BugStudy
from fedlens_research.bugs.tallies import binomial_interval, mean_error, tallied, together
from fedlens_research.bugs.trained import LookedAt, Product, planned_runs
from fedlens_research.bugs.worlds import cast_of, scans
from fedlens_research.bugs.writers import EACH, data_set
from fedlens_research.framework.errors import StudyError

FEW = ("rotate90", "stuck_column", "invert")
PLAN = BugPlan(
    data=("embedded",),
    users=(200,),
    epsilons=(8.0, 4.0),
    shares=(0.4,),
    seeds=(0,),
    faults=FEW[:2],
    questions=("known",),
    draws=3,
    clean=3,
)
PRODUCT = Product(*[pytest.fail] * 4)


@pytest.fixture(scope="module")
def fewer():
    """A library of three faults, where all of it would take a minute."""
    whole = worlds.library
    patch = pytest.MonkeyPatch()
    patch.setattr(worlds, "library", lambda *kind: [h for h in whole(*kind) if h.fault.name in FEW])
    patch.setattr(worlds, "READ", "warmup critic")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def study(fewer, tmp_path_factory):
    """A small benchmark that was carried out."""
    made = BugStudy(PLAN, tmp_path_factory.mktemp("bugs"), PRODUCT)
    made.measure(lambda _: None)
    return made


@pytest.fixture(scope="module")
def inquiry(fewer):
    """Of 200 users at ε = 8, beside a reference of other images."""
    cast = cast_of(load("embedded"), [200], 0)
    trial = BugTrial("known", "embedded", 200, 0, 8.0, "")
    return worlds._inquiry(200, trial, cast, cast.reference), cast


def _bytes(images):
    return {image.numpy().tobytes() for image in images}


def test_no_image_plays_two_parts():
    cast = cast_of(load("embedded"), [500], 3)
    parts = [cast.people[0], cast.reference.images, cast.stand_ins.images]
    found = [_bytes(part) for part in parts]
    assert [len(part) for part in parts] == [10_000, 1000, 1000]
    assert len(set.union(*found)) == sum(map(len, found))
    other = cast_of(load("embedded"), [500], 4)
    assert not torch.equal(cast.people[0], other.people[0])
    with pytest.raises(StudyError, match="at most 1000 users"):
        cast_of(load("embedded"), [1001], 0)


def test_a_user_is_the_same_sound_and_faulty(inquiry):
    """Those without a picture of the class that is at fault release the same."""
    asked, cast = inquiry
    images, labels = cast.people[0][:600], cast.people[1][:600]
    crowd = Crowd(asked, (images, labels), kept=60)
    changed = crowd.faulty(Hypothesis(FAULTS["invert"], Variant((3,), 0.0)))
    moved = np.abs(changed - crowd.sound).max(1) > 1e-6
    holds = [3 in labels[10 * user : 10 * user + 10] for user in range(60)]
    assert moved.tolist() == holds and 0 < sum(holds) < 60


def test_more_noise_is_as_if_releases_had_more_noise(inquiry):
    """What is computed once for all ε is what an inquiry at that ε would compute."""
    asked, cast = inquiry
    noisier = [
        replace(one, rounds=tuple(replace(r, deviation=3 * r.deviation) for r in one.rounds))
        for one in asked.observed.evidence
    ]
    observed = replace(asked.observed, evidence=tuple(noisier))
    anew = Inquiry(observed, cast.reference, worlds.RECORDS, asked.hypotheses[: asked.named])
    scaled = NoisyDraws(asked, cast.reference, 3.0, 200)
    for name, share in NoisyDraws(anew, cast.reference, 1.0, 200).smallest_detectable.items():
        assert scaled.smallest_detectable[name] == pytest.approx(share, rel=0.02)
    users = (cast.people[0][:200], cast.people[1][:200])
    ours, theirs = Crowd(asked, users, kept=0), Crowd(anew, users, kept=0)
    np.testing.assert_allclose(ours.sound / 3, theirs.sound, rtol=1e-3, atol=1e-4)


def test_what_is_planted_is_counted_and_clean_users_are_apart(study):
    results = study.results()
    by_fault = {(m.trial.fault, m.trial.epsilon): m for m in results.measured}
    assert len(by_fault) == 3 * 2
    for fault in FEW[:2]:
        found = by_fault[fault, 8.0].tallies[0]
        assert found.draws == 3 and found.share == 0.4
        assert set(found.names) <= set(FEW)
        assert found.first <= found.named <= found.found <= 3 - found.refused
    clean = by_fault["", 8.0].tallies[0]
    assert clean.share == 0 and clean.named == 0 and by_fault["", 8.0].predicted is None
    assert by_fault["rotate90", 4.0].predicted > by_fault["rotate90", 8.0].predicted


def test_the_table_of_names_counts_right_false_and_missing_ones(study):
    rows = {row[:3]: row[3:] for row in naming_rows(study.results())}
    known = rows["a fault of the library", "embedded", "40%"]
    clean = rows["no fault", "embedded", "0%"]
    assert int(known[0]) == 2 * 2 * 3 and int(clean[0]) == 2 * 3
    assert known[1].endswith("of 12") and known[2].startswith("0%") and clean[1] == "–"
    assert len(CHANGES) >= 30 and not set(CHANGES) & set(FAULTS)


def test_what_stands_in_no_library_changes_images_and_nothing_else():
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(1)) * 2 - 1
    before = images.clone()
    for name, change in CHANGES.items():
        found = change(images, FaultSetting(10, seed=3))
        assert found.shape == images.shape and not torch.equal(found, images), name
        assert torch.isfinite(found).all() and torch.equal(images, before), name


@pytest.mark.skipif("FEDLENS_SHARED" not in os.environ, reason="needs whole data sets")
def test_writers_hold_their_own_digits_alone():
    digits = data_set("mahdbase")
    assert digits.train_images.shape == (600 * EACH, 1, 28, 28)
    assert all(len(set(own)) == 1 for own in digits.user_ids.reshape(-1, EACH))
    people, _ = cast_of(digits, [600], 1).people
    first = people[:EACH].numpy()
    place = next(i for i in range(600) if np.allclose(_images(digits, i), first))
    assert place >= 0


def _images(digits, writer):
    return from_pixels(digits.train_images[EACH * writer : EACH * writer + EACH]).numpy()


def test_more_users_are_as_if_there_had_been_more(inquiry):
    """Noise in the mean falls with their number, and so does the chance of who they are."""
    asked, cast = inquiry
    few, many = (NoisyDraws(asked, cast.reference, 200 / n, n) for n in (200, 400))
    for name, share in few.smallest_detectable.items():
        assert share / 2.2 < many.smallest_detectable[name] < share
    assert few.least_visible(asked.hypotheses[0]) == pytest.approx(
        2 * many.least_visible(asked.hypotheses[0])
    )


def test_no_reader_needs_fewer_users_than_the_bound(inquiry):
    """What a diagnosis says that it would find is never below what any reader could see."""
    asked, cast = inquiry
    for noise in (1.0, 5.0):
        drawn = NoisyDraws(asked, cast.reference, noise, 200)
        for one in asked.hypotheses[: asked.named]:
            said = drawn.smallest_detectable[one.fault.name]
            assert drawn.least_visible(one) > 0
            if len({h.variant for h in asked.hypotheses if h.fault.name == one.fault.name}) == 1:
                assert drawn.least_visible(one) < said


@pytest.mark.parametrize("fault", list(OUTSIDERS))
def test_a_fault_of_no_library_changes_images_and_nothing_else(fault):
    images = scans().images[:30].clone()
    before, labels = images.clone(), scans().labels[:30]
    setting = FaultSetting(10, (), 0.0, 3)
    changed, named = planted(fault).fault.applied(images, labels, setting)
    assert torch.equal(images, before) and torch.equal(named, labels)
    assert changed.shape == images.shape and not torch.equal(changed, images)
    assert float(changed.min()) >= -1 and float(changed.max()) <= 1
    assert fault not in FAULTS and torch.equal(
        changed, planted(fault).fault.applied(images, labels, setting)[0]
    )


def test_a_real_new_class_is_of_other_data_that_is_there():
    assert may_be_planted("shoes as 3", "mnist", ("mnist", "fashion-mnist"))
    assert not may_be_planted("shoes as 3", "mnist", ("mnist",))
    assert not may_be_planted("ones as shoes", "mnist", ("mnist", "fashion-mnist"))
    assert may_be_planted("a frame", "embedded", ("embedded",))


def test_a_trial_that_is_done_is_not_done_again(study, monkeypatch):
    monkeypatch.setattr(measuring, "BugWorld", pytest.fail)
    study.measure(pytest.fail)
    monkeypatch.setattr(measuring, "method", lambda: "another diagnosis")
    assert study.results().measured == ()


def test_the_page_has_the_smallest_shares_and_says_what_was_not_run(study, tmp_path):
    look = LookedAt("sound-1", "tilt", 0.0, "sums", None, None, None, 1.99, "named nothing")
    made = study.write(tmp_path / "bugs.md")
    text = (tmp_path / "bugs.md").read_text()
    assert "## The smallest detectable share" in text and "| `rotate90` |" in text
    assert "known: mnist, 3,000 users: " in text and "No run was really trained" in text
    assert all(path.is_file() for path in made) and (tmp_path / "images/bugs-rates.png").is_file()
    kept = BugResults.read(tmp_path / "bugs.json")
    assert kept == study.results()
    with (tmp_path / "bugs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tallies = [tally for one in kept.measured for tally in one.tallies]
    assert [int(row["first"]) for row in rows] == [tally.first for tally in tallies]
    assert [float(row["share"]) for row in rows] == [tally.share for tally in tallies]
    assert {row["fault"] for row in rows} == {one.trial.fault for one in kept.measured}
    assert BugResults.of(kept.measured, [look], quick=True).to_json()["looks"][0]["how"] == "sums"


def test_a_folder_without_trials_is_refused(tmp_path, capsys):
    given = ["study", "bugs", "--quick", "--kept", "--out", str(tmp_path)]
    assert main(given) == 2
    assert "run it without --kept" in capsys.readouterr().err
    assert main([*given, "--faults", "gremlins"]) == 2
    assert "no fault 'gremlins'" in capsys.readouterr().err


def _said(found, shares, fits=True, p=0.5):
    return DrawnDiagnosis(found, shares, tuple((s - 0.1, s + 0.1) for s in shares), p, fits)


def test_tallies_by_hand():
    said = [
        _said(("tilt",), (0.25,)),
        _said(("blur", "tilt"), (0.2, 0.45), p=0.01),
        _said(("blur",), (0.2,)),
        _said(("tilt",), (0.3,), fits=False),
        replace(_said((), ()), surest="tilt", like="tilt"),
    ]
    found = tallied("tilt", 0.3, said)
    assert (found.draws, found.found, found.first, found.named) == (5, 3, 1, 2)
    assert (found.others, found.refused, found.flagged, found.covered) == (2, 1, 1, 1)
    assert (found.noticed, found.before) == (2, 1)
    assert found.names == {"tilt": 1, "blur": 2} and mean_error(found) == pytest.approx(0.05)
    both = together([found, found])
    assert both.draws == 10 and both.names["blur"] == 4 and len(both.errors) == 4
    none = tallied("", 0.0, said)
    assert (none.found, none.named, none.others) == (3, 0, 3) and mean_error(none) is None


def test_a_rate_has_the_exact_binomial_interval():
    assert binomial_interval(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert binomial_interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert binomial_interval(0, 0) == (0, 1)


def test_the_smallest_share_needs_every_larger_one_to_be_found():
    one = tallied("tilt", 0.1, [_said(("tilt",), (0.1,))] * 10)
    miss = tallied("tilt", 0.2, [_said((), ())] * 10)
    large = replace(one, share=0.3)
    assert measured_share([one, miss, large]) == 0.3
    assert measured_share([one, large]) == 0.1 and measured_share([miss]) is None


def test_the_plan_asks_each_question_once(study):
    trials = list(trials_of(QUICK))
    assert len(set(trials)) == len(trials)
    assert {t.fault for t in trials if t.question == "known"} == {"", *QUICK.faults}
    assert foreign_to("fashion-mnist", ("mnist", "fashion-mnist")) == ("mnist",)
    assert scans().images.shape == (1797, 1, 28, 28) and float(scans().images.min()) == -1
    assert [tally.share for tally in by_share(study.results().measured)] == [0.0, 0.4]
    names = [run.name for run in planned_runs(("tilt",))]
    assert len({run.seed for run in planned_runs(FEW)}) == 5 and names[2] == "tilt"


def test_data_that_is_nowhere_is_replaced_by_the_embedded_digits(tmp_path):
    assert found_data(("mnist",), str(tmp_path)) == ("embedded",)
