"""Drawing samples: by class and seed, with the annotator as a filter where there is one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedlens.models import devices
from fedlens.models.annotators import Annotator
from fedlens.models.generators import Generator
from fedlens.models.shapes import ImageShape
from fedlens.models.weights import load_vector, to_vector
from fedlens.privatizers.networks.design import filter_network
from fedlens.privatizers.record_noise import KEY_BYTES, records_noise
from fedlens.server.config.tree import Config
from fedlens.server.run.arrays import Arrays

BATCH, BATCH_PLACES = 500, 500 * 32 * 32
"""Images made at once, and places in them, at most; they decide memory and nothing else."""
_FILTER_NOISE, _SENSITIVE, _ORDER = b"filter noise", b"sensitive", b"order"
"""What a key that is not to be known is for."""
_NORMALS_AT_ONCE = 16
"""PyTorch fills normals in blocks of this length, and a last short block in another way."""


@dataclass(frozen=True)
class Drawn:
    """Images and what the annotator said while they were chosen."""

    images: Tensor
    """float32 [n, c, h, w] in [-1, 1]."""
    agreement: Tensor | None
    """Probability of each one's class by the annotator, float32 [n]; None where nothing judged."""
    tried: Tensor
    """Candidates that were drawn for each, int64 [n]."""
    passed: Tensor
    """Whether each reached the agreement that was asked for, bool [n]."""
    found: Tensor | None = None
    """Class that the annotator finds likeliest, int64 [n], of samples that it did not choose."""

    def rejected(self, labels: Tensor) -> dict[str, float]:
        """Share of each class's candidates that the filter turned down, by class as a text."""
        shares = {}
        for label in sorted(set(labels.tolist())):
            mine = labels == label
            kept = int(self.passed[mine].sum())
            shares[str(label)] = 1 - kept / int(self.tried[mine].sum())
        return shares


@dataclass(frozen=True)
class Sampler:
    """A source of synthetic images; all it does is post-processing of releases.

    With an annotator and ``agreement`` above 0, candidates are drawn for each image until the
    annotator gives the requested class at least that probability; after ``attempts`` candidates
    the one with the highest is taken, so there is always an image of the class.

    With a ``privatizer`` every image went through that filter last, whatever it was chosen by: no
    image of this source shows what the filter hides. The generator's classes are then pairs, each
    class with each of ``sensitive_classes`` values. Which value was asked for, and the filter's
    noise, follow from the seed *and* the generator's weights, by keyed hashes: a seed is stored
    beside samples, and its readers must know neither, nor find it by trying all that there are.

    Raises:
        ValueError: ``agreement`` outside [0, 1), above 0 without an annotator, or ``attempts``
            below 1; a generator that is not in evaluation mode (its images would depend on each
            other); a generator and an annotator of different classes or shapes, but for a
            generator with one class.
    """

    generator: Generator
    annotator: Annotator | None = None
    agreement: float = 0.0
    attempts: int = 8
    privatizer: nn.Module | None = None
    sensitive_classes: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.agreement < 1:
            raise ValueError(f"agreement={self.agreement} must lie in [0, 1)")
        if self.attempts < 1:
            raise ValueError(f"attempts={self.attempts} must be at least 1")
        judge, maker = self.annotator, self.generator
        if maker.training:
            raise ValueError("samples are drawn in evaluation mode: call generator.eval() first")
        if judge is None and self.agreement > 0:
            raise ValueError(f"agreement={self.agreement} needs an annotator; use 0 without one")
        if judge and not self.judges and (self.agreement > 0 or maker.classes > 1):
            raise ValueError(
                f"an annotator of {judge.classes} classes and images {judge.shape} cannot judge a "
                f"generator of {maker.classes} and {maker.shape}"
            )
        if self.sensitive_classes > 1 and self.privatizer is None:
            raise ValueError("classes are pairs with a sensitive value, and no filter hides it")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.generator.classes

    @property
    def judges(self) -> bool:
        """Whether the annotator knows the classes that samples are asked for.

        It need not, of a generator with one class, which is none: then it only labels.
        """
        judge, maker = self.annotator, self.generator
        if judge is None:
            return False
        return (judge.shape, judge.classes) == (maker.shape, maker.classes)

    @property
    def device(self) -> torch.device:
        """Where images are made; what is drawn is on the processor."""
        return devices.device_of(self.generator)

    @property
    def latent(self) -> int:
        """Length of the generator's noise vector."""
        return self.generator.latent

    @property
    def shown_classes(self) -> int:
        """Number of classes that may be known of a sample: of a pair, without the attribute."""
        return self.classes // self.sensitive_classes

    def asked(self, labels: Tensor, seed: int) -> Tensor:
        """What to draw for shown classes int64 [n]: of pairs, each with a value at random."""
        stream = hashlib.shake_256(self._key(seed, _SENSITIVE)).digest(8 * len(labels))
        hidden = np.frombuffer(stream, "<u8") % np.uint64(self.sensitive_classes)
        return labels * self.sensitive_classes + torch.from_numpy(hidden.astype(np.int64))

    def order(self, count: int, seed: int) -> Tensor:
        """An order of so many samples, int64 [count], that only who has the generator can know."""
        stream = hashlib.shake_256(self._key(seed, _ORDER)).digest(8 * count)
        return torch.from_numpy(np.argsort(np.frombuffer(stream, "<u8"), kind="stable"))

    def unfiltered(self) -> Sampler:
        """The same source without the filter: every image is its first candidate."""
        return replace(self, agreement=0.0)

    @torch.no_grad()
    def draw(self, labels: Tensor, seed: int) -> Tensor:
        """Images float32 [n, c, h, w] in [-1, 1] of classes int64 [n]; the same for the same seed.

        Image i depends on ``seed``, i and its label alone, up to float32 rounding, and not on how
        many others are drawn.
        """
        drawn, chosen = self._chosen(labels, seed)
        return self._hidden(drawn.images, seed, torch.stack([labels, chosen], 1))

    @torch.no_grad()
    def judged(self, labels: Tensor, seed: int) -> Drawn:
        """What `draw` gives, with the annotator's opinion of it.

        Where a ``privatizer`` hides something there is none: an opinion was of the image before,
        and may tell what is hidden.
        """
        drawn, chosen = self._chosen(labels, seed)
        if self.privatizer is not None:
            images = self._hidden(drawn.images, seed, torch.stack([labels, chosen], 1))
            return replace(drawn, images=images, agreement=None)
        if self.annotator is not None and self.judges and drawn.agreement is None:
            beliefs = _probabilities(self.annotator, drawn.images)
            return replace(
                drawn,
                agreement=beliefs.gather(1, labels[:, None])[:, 0],
                found=beliefs.argmax(1),
            )
        return drawn

    @property
    def _at_once(self) -> int:
        """Images that are made at once."""
        _, height, width = self.generator.shape
        return max(1, min(BATCH, BATCH_PLACES // (height * width)))

    @property
    def filters(self) -> bool:
        """Whether candidates are turned down."""
        return self.annotator is not None and self.agreement > 0

    def _chosen(self, labels: Tensor, seed: int) -> tuple[Drawn, Tensor]:
        """Unfiltered images, and which candidate each of them is, int64 [n]."""
        images = self._candidates(labels, seed, torch.arange(len(labels)))
        tried, chosen = torch.ones_like(labels), torch.zeros_like(labels)
        if not self.filters:
            return Drawn(images, None, tried, tried > 0), chosen
        best = self._belief(images, labels)
        for attempt in range(1, self.attempts):
            open_ = (best < self.agreement).nonzero()[:, 0]
            if not len(open_):
                break
            tried[open_] += 1
            others = self._candidates(labels, _seed_of(seed, attempt), open_)
            belief = self._belief(others, labels[open_])
            better = belief > best[open_]
            images[open_[better]], best[open_[better]] = others[better], belief[better]
            chosen[open_[better]] = attempt
        return Drawn(images, best, tried, best >= self.agreement), chosen

    @torch.no_grad()
    def between(self, shares: Tensor, seed: int) -> Tensor:
        """Unfiltered images [n, c, h, w] between classes, by shares float32 [n, classes]."""
        noise = _normals(len(shares), self.latent, seed)
        images, device = torch.empty(len(shares), *self.generator.shape), self.device
        for places in torch.split(torch.arange(len(shares)), self._at_once):
            images[places] = self.generator(
                noise[places].to(device), shares[places].to(device)
            ).cpu()
        return self._hidden(images, seed, shares)

    @torch.no_grad()
    def _hidden(self, images: Tensor, seed: int, drawn_for: Tensor) -> Tensor:
        """The images as the privatizer's filter releases them, each with noise of its own.

        It follows from seed, place and what the image was drawn for, [n, ...]: two images with one
        noise would show by their difference what it hides.
        """
        if self.privatizer is None:
            return images
        shape: tuple[int, ...] = self.privatizer.noise_shape  # type: ignore[assignment]
        places = torch.arange(len(images))[:, None]
        rows = torch.cat([places, drawn_for], 1).float()
        noise = records_noise(self._key(seed, _FILTER_NOISE), rows, shape)
        parts = (torch.split(whole, self._at_once) for whole in (images, noise))
        device = devices.device_of(self.privatizer)
        found = [
            self.privatizer(part.to(device), drawn.to(device)).cpu()
            for part, drawn in zip(*parts, strict=True)
        ]
        return torch.cat(found)

    def _key(self, seed: int, purpose: bytes) -> bytes:
        """What only who has the generator can know: 32 bytes, where PyTorch's seeds have four."""
        digest = hashlib.blake2b(person=purpose, digest_size=KEY_BYTES)
        digest.update(to_vector(self.generator).tobytes())
        digest.update(str(seed).encode())
        return digest.digest()

    @torch.no_grad()
    def label(self, images: Tensor) -> Tensor:
        """The annotator's class probabilities, float32 [n, classes], of images [n, c, h, w].

        Raises:
            ValueError: there is no annotator, or none that has learned to read filtered images.
        """
        if self.annotator is None:
            raise ValueError("this run trained no annotator: schedule a task of kind 'annotator'")
        if self.privatizer is not None:
            raise ValueError("the annotator learned from unfiltered images and cannot read these")
        return _probabilities(self.annotator, images)

    def _belief(self, images: Tensor, labels: Tensor) -> Tensor:
        if self.annotator is None:
            raise ValueError("only an annotator has beliefs")
        return _probabilities(self.annotator, images).gather(1, labels[:, None])[:, 0]

    def _candidates(self, labels: Tensor, seed: int, places: Tensor) -> Tensor:
        """The images at ``places``; the noise of all is drawn, so each has its own."""
        noise, first = _normals(len(labels), self.latent, seed), 0
        images = torch.empty(len(places), *self.generator.shape)  # never held twice
        device = self.device
        for some in torch.split(places, self._at_once):
            drawn = self.generator(noise[some].to(device), labels[some].to(device))
            images[first : first + len(some)] = drawn
            first += len(some)
        return images


def _probabilities(annotator: Annotator, images: Tensor) -> Tensor:
    device = annotator.weight.device
    parts = [annotator(part.to(device)).cpu() for part in torch.split(images, BATCH)]
    return torch.softmax(torch.cat(parts), 1)


def sampler_of(config: Config, generator: Generator, annotator: Annotator | None) -> Sampler:
    """The configured filter over a generator in evaluation mode; none without an annotator."""
    release = config.release
    agreement = 0.0 if annotator is None else release.agreement
    return Sampler(generator, annotator, agreement, release.attempts)


def kept_arrays(sampler: Sampler) -> Arrays:
    """All of a sampler that was trained: what a kept generator's file holds."""
    arrays: Arrays = {"average": to_vector(sampler.generator)}
    if sampler.annotator is not None:
        arrays["annotator"] = to_vector(sampler.annotator)
        if not sampler.judges:  # it knows other classes than the generator, which has one
            arrays["annotator_classes"] = np.array(sampler.annotator.classes)
    if sampler.privatizer is not None:
        arrays["privatizer"] = to_vector(sampler.privatizer)
        arrays["sensitive_classes"] = np.array(sampler.sensitive_classes)
    return arrays


def restored_sampler(config: Config, shape: ImageShape, classes: int, arrays: Arrays) -> Sampler:
    """The sampler of which `kept_arrays` were kept, whose generator has so many classes.

    Raises:
        ValueError: the arrays are of networks of other sizes than the configuration's.
    """
    made = Generator(shape, classes, config.generator.width, config.generator.latent)
    load_vector(made, arrays["average"].astype(np.float32))
    annotator, settings = None, config.annotator
    if "annotator" in arrays and settings is not None:
        known = int(arrays.get("annotator_classes", np.array(classes)))
        annotator = Annotator(shape, known, settings.components, settings.features)
        load_vector(annotator, arrays["annotator"].astype(np.float32))
    device = devices.best_device()
    annotator = None if annotator is None else annotator.to(device)
    sampler = sampler_of(config, made.eval().to(device), annotator)
    if not config.privatizer.on_samples:
        return sampler
    filter_ = restored_filter(config, shape, arrays["privatizer"])
    return replace(sampler, privatizer=filter_, sensitive_classes=int(arrays["sensitive_classes"]))


def restored_filter(config: Config, shape: ImageShape, vector: NDArray[np.generic]) -> nn.Module:
    """A privatizer's trained filter in evaluation mode, from its weights."""
    network: nn.Module = filter_network(config.privatizer.model_dump(), shape)
    load_vector(network, vector.astype(np.float32))
    return network.eval().requires_grad_(False)


def _normals(rows: int, length: int, seed: int) -> Tensor:
    """Standard normals [rows, length] whose first rows do not depend on how many there are."""
    source = torch.Generator().manual_seed(seed)
    whole = -(-length // _NORMALS_AT_ONCE) * _NORMALS_AT_ONCE
    return torch.randn(rows, whole, generator=source)[:, :length]


def _seed_of(seed: int, attempt: int) -> int:
    """The seed of a later attempt, apart from the seeds of neighbouring draws."""
    return int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0] >> 1)
