"""Samples with where they come from, as arrays and as other libraries' data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fedlens.accountant.wording import shown
from fedlens.foundation.errors import FedlensError, WrongUse
from fedlens.foundation.json_values import json_value

if TYPE_CHECKING:
    from fedlens.server.run.directory import RunDirectory
    from fedlens.store.records import Purpose, StoredBatch

WHITE = 255


class MissingPackage(FedlensError):
    """A package that is not installed and that only this needs."""


@dataclass(frozen=True)
class Provenance:
    """Which generator samples were drawn from, and what had been spent when it was made.

    Attributes:
        run_id: of the run.
        round: the last round that the generator learned from.
        kind: ``curated`` (guided and filtered by the annotator where there is one),
            ``faithful`` (neither) or ``strip`` (the few of a round).
        stored: False for samples drawn by request.
        seed: of the generator's noise.
        checkpoint_sha256: digest of the generator.
        private: False where the run guarantees nothing; the figures then protect no user.
        dp_epsilon: differential privacy at ``delta_dp``; None where it is infinite.
        delta_dp: δ of ``dp_epsilon``.
        bayesian_epsilon: Bayesian differential privacy at ``delta_bayesian``, corrected; an
            estimate from private norms. None where it is infinite.
        delta_bayesian: δ of ``bayesian_epsilon``.
        label: what belongs on every sample: synthetic, and how it was drawn.
    """

    run_id: str
    round: int
    kind: str
    seed: int
    checkpoint_sha256: str
    private: bool
    dp_epsilon: float | None
    delta_dp: float
    bayesian_epsilon: float | None
    delta_bayesian: float
    label: str
    stored: bool = True

    @property
    def words(self) -> str:
        """All of it in one line, to keep beside the samples."""
        dp, bayesian = (
            shown(math.inf if epsilon is None else epsilon)
            for epsilon in (self.dp_epsilon, self.bayesian_epsilon)
        )
        return (
            f"{self.label} · run {self.run_id} · round {self.round} · seed {self.seed} · "
            f"DP ε={dp} (δ={shown(self.delta_dp)}) · "
            f"Bayesian DP ε={bayesian} (δ={shown(self.delta_bayesian)}, estimate)"
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Synthetic images and the classes they were requested for.

    Attributes:
        images: uint8 [n, channels, height, width].
        labels: int64 [n]; -1 of all where the data are unlabelled.
        provenance: of all of them.
        agreement: the annotator's probability of each one's class, float64 [n]; nan where it has
            none, or may not have one.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    provenance: Provenance
    agreement: NDArray[np.float64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.labels)

    def torch(self) -> Dataset[tuple[Tensor, int]]:
        """Pairs of an image, float32 [channels, height, width] in [0, 1], and its class."""
        return _Pairs(self)

    def datasets(self) -> Any:
        """A Hugging Face ``datasets.Dataset`` with columns ``image`` and ``label``.

        Its ``info.description`` is the provenance in words.

        Raises:
            MissingPackage: the package ``datasets`` is not installed.
        """
        try:
            import datasets
        except ImportError:
            raise MissingPackage(
                "the package 'datasets' is not installed: pip install 'fedlens[datasets]'"
            ) from None
        from PIL import Image

        pictures = [Image.fromarray(_displayed(image)) for image in self.images]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        info = datasets.DatasetInfo(description=self.provenance.words, features=features)
        columns = {"image": pictures, "label": self.labels.tolist()}
        return datasets.Dataset.from_dict(columns, features=features, info=info)


class _Pairs(Dataset[tuple[Tensor, int]]):
    def __init__(self, samples: Samples) -> None:
        self._images, self._labels = torch.from_numpy(samples.images), samples.labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._images[index].float() / WHITE, int(self._labels[index])


def _displayed(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[channels, height, width] as pictures are: [height, width] or [height, width, 3]."""
    return image[0] if len(image) == 1 else np.moveaxis(image, 0, -1)


def load_samples(
    directory: RunDirectory, store_url: str, run_id: str, kind: Purpose, round_number: int | None
) -> Samples:
    """The samples of the last batch of that kind, or of that round."""
    from fedlens.simulations.run_artifacts import last_batch, requested_numbers
    from fedlens.store import SampleFilter, decode_png, open_store

    with open_store(store_url) as store:
        batch = last_batch(store, run_id, kind, round_number)
        found = store.samples(SampleFilter(batch_id=batch.batch_id), 0, batch.count)
    return Samples(
        np.stack([decode_png(sample.png) for sample in found]),
        requested_numbers(found),
        _provenance(batch),
        np.array([sample.agreement for sample in found], dtype=np.float64),
    )


def export_samples(store_url: str, run_id: str, kind: Purpose, round_number: int | None) -> bytes:
    """The last batch of that kind, or of that round, as a ZIP."""
    from fedlens.simulations.run_artifacts import last_batch
    from fedlens.store import SampleFilter, open_store
    from fedlens.store.sample_archive import archive

    with open_store(store_url) as store:
        batch = last_batch(store, run_id, kind, round_number)
        found = store.samples(SampleFilter(batch_id=batch.batch_id), 0, batch.count)
        return archive(batch, found, store.run(run_id))


def draw_samples(
    directory: RunDirectory,
    store_url: str,
    run_id: str,
    count: int,
    seed: int,
    kind: Purpose,
    round_number: int | None,
) -> Samples:
    """Fresh samples; of their generator the store has a batch, whose figures are theirs too."""
    from fedlens.models.shapes import as_pixels
    from fedlens.server.run.directory import RunDirectoryError
    from fedlens.simulations.run_artifacts import judged_samples, kept_sampler
    from fedlens.store import open_store

    if count < 1:
        raise WrongUse(f"count = {count}: give at least 1")
    made, labels = judged_samples(kept_sampler(directory, round_number, kind), count, seed)
    with open_store(store_url) as store:
        batches = [b for b in store.batches(run_id) if round_number in (None, b.round)]
    if not batches:
        raise RunDirectoryError(
            f"{directory.path} has no samples in its store to take the figures from"
        )
    named = [batch for batch in batches if batch.purpose == kind]
    origin = replace(_provenance((named or batches)[-1]), kind=kind, seed=seed, stored=False)
    agreement = np.full(count, np.nan)
    if made.agreement is not None:
        agreement = made.agreement.double().numpy()
    if directory.config().data.unlabelled:
        labels = torch.full_like(labels, -1)
    return Samples(as_pixels(made.images), labels.numpy(), origin, agreement)


def _provenance(batch: StoredBatch) -> Provenance:
    return Provenance(
        run_id=batch.run_id,
        round=batch.round,
        kind=batch.purpose,
        seed=batch.seed,
        checkpoint_sha256=batch.checkpoint_sha256,
        private=batch.private,
        dp_epsilon=json_value(batch.dp_epsilon),
        delta_dp=batch.delta_dp,
        bayesian_epsilon=json_value(batch.bdp_corrected),
        delta_bayesian=batch.delta_bdp,
        label=batch.provenance,
    )
