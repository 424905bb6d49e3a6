"""The recipe of arXiv:2003.00997 as its authors ran it, for comparison. It protects no record.

Triastcyn & Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy Guarantees". Their
MNIST notebook trains one critic centrally: batches of 1,024, the gradient of the *whole batch's
mean* clipped to C = 1, noise of 0.1 C, learning rate 0.02, a random tenth of the coordinates a
step, 32 epochs. Its Bayesian accountant is given the distances between eight leave-one-out mean
gradients of each batch, 28 pairs, and orders 2 to 32.

Clipping a mean instead of each record bounds the mean and no record's part in it. In a batch whose
gradient lies at the clip one record may turn it round, so what differential privacy can say rests
on a sensitivity of 2C, twenty times the noise. The distances that are measured are those of common
records, thousands of times smaller. Both figures are reported as they are.

The networks are this project's own, of the form that the paper describes; batches and noise are
those of the notebook. Simulation only.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedlens.accountant.wording import shown
from fedlens.foundation.files import write_durably
from fedlens.models.generators import Generator
from fedlens.models.shapes import as_pixels
from fedlens.models.weights import load_vector, to_vector
from fedlens.server.config.sections import ReleaseConfig
from fedlens.server.config.tree import Config
from fedlens.server.generation.sampler import Sampler
from fedlens.simulations.engine import STUDENT_IMAGES, STUDENT_SEED
from fedlens.simulations.federation.apps import simulated_federation
from fedlens.simulations.plots.run import contact_sheet
from fedlens.simulations.run_artifacts import fresh_samples
from fedlens.simulations.students.students import train_student
from fedlens_research.framework.trials import Report
from fedlens_research.table1.judges import test_tensors
from fedlens_research.table1.providers import TrainedSpending
from fedlens_research.table1.published_training import PublishedRecipe, recipe_of

_WEIGHTS, _FIGURES = "published.npy", "published.json"


def published(
    config: Config, folder: Path, report: Report = lambda _: None, *, student: bool = True
) -> dict[str, Any]:
    """Train the recipe centrally; returns its figures as a plain dict.

    The task ``critic`` says how many steps (``rounds``), of batches of ``local_batch``, C and the
    noise; the preset ``mnist-record-paper003`` has the notebook's. The folder keeps the generator,
    the figures and a contact sheet.

    Returns:
        `PublishedSpending` as keys, ``student_accuracy`` in [0, 1] or None, ``contact_sheet``.

    Raises:
        TrialFailed: fewer records than a batch.
    """
    dataset, _ = simulated_federation(config.data, config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    training = PublishedRecipe(config, dataset)
    for step in training.run():
        if step % 100 == 0:
            report(f"step {step} of {recipe_of(config).rounds}")
    figures = asdict(training.figures())
    content = io.BytesIO()
    np.save(content, to_vector(training.trainer.average))
    write_durably(folder / _WEIGHTS, content.getvalue())
    known = {"config": config.flat(), "shape": dataset.shape, "classes": dataset.classes}
    write_durably(folder / _FIGURES, json.dumps({**known, "figures": figures}).encode())
    sampler, accuracy = _kept(folder), None
    if student:  # of samples with their requested classes, tested on real images
        images, labels = fresh_samples(sampler, STUDENT_IMAGES, config.seed + STUDENT_SEED)
        real = test_tensors(dataset)
        classes, seed = dataset.classes, config.seed
        accuracy = train_student(images, labels, *real, classes=classes, seed=seed).accuracy
    sheet, caption = folder / "contact-sheet.png", f"SYNTHETIC · {_statement(figures)}"
    images, labels = fresh_samples(sampler, 8 * sampler.classes, STUDENT_SEED)
    contact_sheet(as_pixels(images), labels.numpy(), rows=8, caption=caption, path=sheet)
    return {**figures, "student_accuracy": accuracy, "contact_sheet": str(sheet)}


def train(config: Config, folder: Path, report: Report) -> TrainedSpending:
    """The provider's training: `published` without its student; what is there is not trained anew.

    The figures of differential privacy are the least valid ones, as for every other row.
    """
    if not (folder / _FIGURES).is_file():
        published(config, folder, report, student=False)
    found = json.loads((folder / _FIGURES).read_text())["figures"]
    same = ("epsilon_dp", "delta_dp", "epsilon_dp_at_bdp_delta", "delta_bdp")
    return TrainedSpending(
        **{name: found[name] for name in same},
        bdp_as_published=found["epsilon_bdp_as_published"],
        bdp_corrected=found["epsilon_bdp_corrected"],
        bdp_sound=found["epsilon_dp_at_bdp_delta"],  # no bound that is sound takes the distances
        rounds=found["steps"],
        statement=_statement(found),
    )


def source(folder: Path, release: ReleaseConfig) -> Sampler:
    """The generator trained in ``folder``; without an annotator ``release`` filters nothing."""
    del release
    return _kept(folder)


def _kept(folder: Path) -> Sampler:
    known = json.loads((folder / _FIGURES).read_text())
    config, shape = Config().updated(known["config"]), tuple(known["shape"])
    settings = config.generator
    generator = Generator(shape, known["classes"], settings.width, settings.latent)
    load_vector(generator, np.load(folder / _WEIGHTS))
    return Sampler(generator.eval())


def _statement(figures: dict[str, Any]) -> str:
    """What may be said of it, in words."""
    return (
        f"as published: Bayesian ε={shown(figures['epsilon_bdp_as_published'])} "
        f"(δ={shown(figures['delta_bdp'])}); what protects a record: DP "
        f"ε={shown(figures['epsilon_dp'])} (δ={shown(figures['delta_dp'])}), for the clip bounds "
        "the batch's mean and no record's part in it"
    )
