"""Fresh readers of the utility of records: what a fixed service would be."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import ConvClassifier, JointClassifiers, Mlp, check_image
from fedlens.models.students import StudentCnn
from fedlens.privatizers.private_data import PrivateData

CHUNK = 500
HELD_BACK = 0.1
"""Share of the owners by whom a reader of images is chosen, one at least."""
MOVED = 2
"""Pixels by which images are moved at most while a reader learns."""
READER_WIDTH = 12
"""Channels of its first convolution."""
COMPONENTS, LINEAR_ROWS, LINEAR_STEPS = 96, 12_000, 300
NEVER = -30.0  # Logit of a use that was not seen


def learn(
    net: nn.Module,
    records: Tensor,
    labels: Tensor,
    *,
    steps: int,
    rate: float,
    seed: int,
    moved: int = 0,
) -> nn.Module:
    """Train a classifier by cross-entropy with Adam, in place; its rate falls along a line.

    With ``moved`` each batch of images is moved by up to so many pixels, its edge repeated.
    """
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - 0.9 * step / steps)
        rows = torch.randint(len(records), (128,), generator=generator)
        seen = _moved(records[rows], moved, generator) if moved else records[rows]
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(net(seen), labels[rows]))
        optimiser.step()
    return net


def _moved(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Images [n, c, h, w], all moved alike."""
    height, width = images.shape[2:]
    down, right = torch.randint(2 * most + 1, (2,), generator=generator).tolist()
    wide = F.pad(images, (most,) * 4, mode="replicate")
    return wide[:, :, down : down + height, right : right + width]


@torch.no_grad()
def accuracy(net: nn.Module, records: Tensor, labels: Tensor) -> float:
    """Share of records whose likeliest class is the label."""
    answers = torch.cat([net(part).argmax(-1) for part in torch.split(records, CHUNK)])
    return float((answers == labels).double().mean())


def small_reader(shape: Sequence[int], classes: int, generator: torch.Generator) -> nn.Module:
    """A strided student network where the images' size suits it, else a small LeNet."""
    image = check_image(shape)
    if image[1] == image[2] and image[1] in (28, 32) and image[0] in (1, 3):
        return StudentCnn(image, classes, generator=generator)
    return ConvClassifier(image, classes, generator=generator)


def joint_adversary(train: PrivateData, generator: torch.Generator) -> nn.Module:
    """Convolutions beside a dense network: hidden from the first alone, trees still read it."""
    classes = train.sensitive_classes
    return JointClassifiers(
        small_reader(train.shape, classes, generator),
        Mlp(math.prod(train.shape), classes, generator=generator),
    )


def read_images(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """A fresh reader of the utility of images: a small network, or a linear one of components.

    Both learn from all records but those of one owner in ten, on which the one with the least loss
    is chosen: a network alone reads few pictures of few people far below what they tell. Without
    owners records are held back.

    Args:
        data: images [n, c, h, w]; of one owner, or one record, nothing is held back for a choice,
            and the network is taken.
        steps: batches of 128 of the network, which sees images moved by up to two pixels.
        seed: of its weights, of batches and of who is held back.
    """
    generator = torch.Generator().manual_seed(seed)
    net = ConvClassifier(
        check_image(data.shape), data.utility_classes, READER_WIDTH, generator=generator
    )
    kept, apart = _parts_by_owner(data, seed)
    some = data.take(kept)
    learn(net, some.records, some.utility, steps=steps, rate=2e-3, seed=seed, moved=MOVED).eval()
    if not len(apart) or len(torch.unique(some.utility)) < 2:
        return net
    judges = data.take(apart)
    line = linear_reader(some, seed)
    best = min((net, line), key=lambda reader: _loss_of(reader, judges))
    return net if best is net else linear_reader(data, seed)


def linear_reader(data: PrivateData, seed: int) -> nn.Module:
    """Logistic regression on principal components of records (one affine map), of the utility.

    Args:
        data: records [n, ...] of two uses or more.
        seed: of the rows, where there are more than LINEAR_ROWS, and of the components.
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:LINEAR_ROWS]
    rows, truth = data.records[order].flatten(1).numpy(), data.utility[order].numpy()
    count = min(COMPONENTS, *rows.shape, max(1, len(rows) // 2))
    found = PCA(count, svd_solver="randomized", random_state=seed).fit(rows)
    vectors = found.components_ / max(float(found.explained_variance_.mean()) ** 0.5, 1e-6)
    model = LogisticRegression(max_iter=LINEAR_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as far as it gets is its reading
        model.fit((rows - found.mean_) @ vectors.T, truth)
    return _affine(model, vectors, found.mean_, data)


def _affine(
    model: LogisticRegression,
    vectors: NDArray[np.float32],
    middle: NDArray[np.float32],
    data: PrivateData,
) -> nn.Module:
    """The fitted model as a layer; a use that no row has is never answered."""
    weights, bias = model.coef_, model.intercept_
    if len(weights) == 1:  # of two uses it keeps the second's alone
        weights, bias = np.vstack([0 * weights, weights]), np.concatenate([0 * bias, bias])
    layer = nn.Linear(vectors.shape[1], data.utility_classes)
    mixed = torch.from_numpy(weights @ vectors)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(NEVER)
        layer.weight[model.classes_] = mixed.float()
        layer.bias[model.classes_] = torch.from_numpy(bias - weights @ vectors @ middle).float()
    return nn.Sequential(nn.Flatten(), layer).eval()


@torch.no_grad()
def _loss_of(reader: nn.Module, judges: PrivateData) -> float:
    """Cross-entropy of its answers, as sharp as serves it best: an overconfident one may be right.

    Inverse temperatures from 1/8 to 1, by steps of two.
    """
    logits = torch.cat([reader(part) for part in torch.split(judges.records, CHUNK)])
    sharp = (1.0, 0.5, 0.25, 0.125)
    return min(float(F.cross_entropy(one * logits, judges.utility)) for one in sharp)


def _parts_by_owner(data: PrivateData, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to learn from and to choose by; nobody's are in both, and one owner's all learn."""
    owners = torch.arange(len(data)) if data.owners is None else data.owners
    _, who = torch.unique(owners, return_inverse=True)
    people = int(who.max()) + 1
    held = max(1, round(HELD_BACK * people)) if people > 1 else 0
    apart = torch.zeros(people, dtype=torch.bool)
    apart[torch.randperm(people, generator=torch.Generator().manual_seed(seed))[:held]] = True
    return torch.where(~apart[who])[0], torch.where(apart[who])[0]


def read_points(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """The same of points."""
    generator = torch.Generator().manual_seed(seed)
    net = Mlp(math.prod(data.shape), data.utility_classes, generator=generator)
    return learn(net, data.records, data.utility, steps=steps, rate=5e-3, seed=seed).eval()
