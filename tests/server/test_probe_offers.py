"""Findings lead to the probe that would confirm them, with its price."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.diagnosis.probe_offers import probe_offer, question_about
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import Fault, FaultSetting
from fedlens.models.probes.asking import parse_probe
from fedlens.server.config.tree import ConfigError
from fedlens.server.ledger.run_ledger import question_of

COLOURED = torch.rand(4, 3, 28, 28, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_of_the_library_has_a_probe_that_can_be_asked(name):
    fault = FAULTS[name]
    for variant in fault.variants(10)[:6]:
        amount = variant.amount if fault.measure else None
        text = fault.question(amount, variant.chosen or tuple(range(10)), 10)
        parse_probe(text).check((3, 28, 28), 10)


@pytest.mark.parametrize("name", ["rotate90", "mirror", "invert", "shift_right", "swap_channels"])
def test_what_is_asked_undoes_the_fault(name):
    fault, labels = FAULTS[name], torch.arange(4)
    amount = fault.amounts[0]
    own = COLOURED.clone()
    own[:, :, :, -8:] = -1  # a shift pushes nothing out
    faulty, _ = fault.applied(own, labels, FaultSetting(10, amount=amount))
    planted = parse_probe(fault.question(amount if fault.measure else None)).argument.fault
    back, _ = planted.fault.applied(faulty, labels, planted.setting(10, 0))
    assert torch.allclose(back, own, atol=1e-6)


def test_what_a_covered_image_is_asked_finds_it_unchanged():
    for name in ("occlude", "stuck_column", "stuck_row", "crop", "quantise"):
        fault = FAULTS[name]
        setting = FaultSetting(10, amount=fault.amounts[0])
        once, _ = fault.applied(COLOURED, torch.arange(4), setting)
        again, _ = fault.applied(once, torch.arange(4), setting)
        assert torch.allclose(once, again, atol=1e-5)
        assert fault.question(fault.amounts[0]).startswith(f"unchanged:{name}:amount=")


def test_an_offer_is_the_cheapest_that_tells_enough_and_says_who_refuses(tmp_path):
    offer = probe_offer("better_after:rotate270", users=1000, delta=1e-6)
    assert offer.probe == "better_after:rotate270" and offer.price.half_width <= 0.03
    assert offer.command("runs/a").endswith("--epsilon 0.3 --delta 1e-06")
    assert probe_offer("repeats", users=3000, delta=1e-6).price.asked_epsilon == 0.1
    terms = PopulationTerms("clinic", "user", 1e-6, 1.0, probe_epsilon=0.1)
    population = Population.create(tmp_path / "clinic", terms)
    assert probe_offer("repeats", users=1000, delta=1e-6, population=population).price.refusal
    assert probe_offer("", users=1000, delta=1e-6) is None


def test_a_question_leaves_out_what_is_not_known():
    assert FAULTS["rotate90"].question(None, range(10), 10) == "better_after:rotate270"
    assert FAULTS["tilt"].question() == "better_after:tilt"
    assert FAULTS["tilt"].question(20.0, (1, 7), 10) == "better_after:tilt:classes=1,7:amount=-20"
    assert FAULTS["scale"].question(0.6) == "better_after:scale:amount=1.6667"
    assert FAULTS["swap_labels"].question(None, (1, 7), 10) == (
        "better_after:swap_labels:classes=1,7"
    )
    assert FAULTS["missing_class"].question(None, (3,), 10) == "lacks_label:3"
    assert FAULTS["missing_class"].question() == Fault("haze", "in haze").question() == ""


def test_pages_can_ask_for_an_offer_without_a_training_framework():
    code = "import sys, fedlens.diagnosis.probe_offers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_approval_is_of_one_runs_network(small_config, tmp_path):
    """The page, the command and the round name it alike; of records alone no run matters."""
    Ledger.create(tmp_path / "ledger.jsonl", {"run_id": "other"})

    def question(probe, model=""):
        asking = small_config(
            schedule="critic probe", tasks__probe={"kind": "probe", "probe": probe, "model": model}
        )
        return question_of("probe", asking.tasks["probe"], "own")

    assert question("recognised", str(tmp_path)) == question_about("recognised", "other")
    assert question("recognised") == question_about("recognised", "own") != "probe recognised"
    assert question("intensity") == question_about("intensity", "other") == "probe intensity"
    with pytest.raises(ConfigError, match="its ledger cannot be read"):
        question("recognised", str(tmp_path / "gone"))
