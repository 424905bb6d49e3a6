"""A batch of samples as one file: images, a table, and what was guaranteed when they were made."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence

from fedlens.accountant.wording import shown
from fedlens.store.records import RunRecord, StoredBatch, StoredSample

COLUMNS = ("sample_id", "position", "requested_class", "agreement", "sha256")
README = """{provenance}

Samples of run {run_id}, round {round}: {count} images, purpose {purpose}, seed {seed}, generator
{checkpoint_sha256}.

Spent when they were made: DP epsilon {dp_epsilon} at delta {delta_dp}, for anyone;
Bayesian DP epsilon {bdp_corrected} at delta {delta_bdp}, for people like those enrolled
(corrected, an estimate).

{guarantee}

samples.csv has a line for each image of images/: its requested class, and the probability of that
class by the run's private annotator (agreement), where it has one. Unlabelled samples have neither.
{classes}"""


def archive(batch: StoredBatch, samples: Sequence[StoredSample], run: RunRecord) -> bytes:
    """A ZIP of a batch: ``README.txt``, ``samples.csv`` and ``images/<sample_id>.png``.

    Args:
        batch: whose samples they are.
        samples: in the order of the table.
        run: the one that they are of.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("README.txt", _readme(batch, run))
        file.writestr("samples.csv", _table(batch, samples))
        for sample in samples:
            file.writestr(f"images/{sample.sample_id}.png", sample.png)
    return content.getvalue()


def _readme(batch: StoredBatch, run: RunRecord) -> str:
    """The words, figures rounded up: a file promises no more than holds."""
    names = ("dp_epsilon", "delta_dp", "bdp_corrected", "delta_bdp")
    figures = {name: shown(getattr(batch, name), 4) for name in names}
    named = [f"{number} {name}" for number, name in enumerate(run.class_names)]
    classes = f"\nClasses: {', '.join(named)}.\n" if named else ""
    return README.format(**(vars(batch) | figures), guarantee=run.guarantee, classes=classes)


def _table(batch: StoredBatch, samples: Sequence[StoredSample]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "purpose", "provenance"])
    for sample in samples:
        values = [getattr(sample, name) for name in COLUMNS]
        writer.writerow([*values, batch.purpose, batch.provenance])
    return text.getvalue()
