"""The student: learns the real digits, is reproducible, moves no global state."""

import math

import pytest
import torch

from fedlens.data.registry import load
from fedlens.models.shapes import ShapeError
from fedlens.simulations.students.students import train_student


def tensors(images, labels):
    return torch.from_numpy(images.copy()).float() / 127.5 - 1, torch.from_numpy(labels.copy())


@pytest.fixture(scope="module")
def digits():
    sample = load("embedded")
    return (
        *tensors(sample.train_images, sample.train_labels),
        *tensors(sample.test_images, sample.test_labels),
    )


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_real_training_data_gives_over_96_percent(digits, one_thread):
    steps = []
    result = train_student(*digits, classes=10, epochs=3, progress=lambda *at: steps.append(at))
    assert result.accuracy > 0.96
    assert len(result.per_class) == 10
    counts = torch.bincount(digits[3])
    shared = sum(share * int(count) for share, count in zip(result.per_class, counts, strict=True))
    assert shared / len(digits[3]) == pytest.approx(result.accuracy, abs=1e-5)
    assert steps == [(i, len(steps)) for i in range(1, len(steps) + 1)]
    assert not result.model.training
    with torch.no_grad():
        right = result.model(digits[2]).argmax(1) == digits[3]
    assert float(right.float().mean()) == pytest.approx(result.accuracy)


def test_the_same_seed_gives_the_same_student_and_touches_nothing(digits, one_thread):
    images, labels, test_images, test_labels = digits
    few = (images[:500], labels[:500], test_images[:200], test_labels[:200])
    before, copy = torch.random.get_rng_state(), few[0].clone()
    one = train_student(*few, classes=10, epochs=1, seed=3)
    two = train_student(*few, classes=10, epochs=1, seed=3)
    other = train_student(*few, classes=10, epochs=1, seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(few[0], copy)
    assert torch.equal(one.model.head.weight, two.model.head.weight)
    assert not torch.equal(one.model.head.weight, other.model.head.weight)


@pytest.mark.parametrize(("architecture", "least"), [("mlp", 0.92), ("residual", 0.96)])
def test_every_architecture_learns_the_real_digits(architecture, least, digits, one_thread):
    result = train_student(*digits, classes=10, architecture=architecture, epochs=3)
    assert result.accuracy > least and result.architecture == architecture


def test_certain_soft_labels_are_hard_ones(digits, one_thread):
    images, labels, test_images, test_labels = digits
    few = (images[:500], labels[:500], test_images[:200], test_labels[:200])
    soft = torch.nn.functional.one_hot(few[1], 10).float()
    hard = train_student(*few, classes=10, epochs=1)
    same = train_student(few[0], soft, *few[2:], classes=10, epochs=1)
    assert torch.allclose(hard.model.head.weight, same.model.head.weight, atol=1e-4)


def test_soft_labels_teach_more_than_which_class_is_likeliest(digits, one_thread):
    """A student of a teacher that says how sure it is answers as unsurely as it was taught."""
    images, labels, test_images, test_labels = digits
    unsure = 0.5 * torch.nn.functional.one_hot(labels, 10) + 0.05
    result = train_student(images, unsure, test_images, test_labels, classes=10, epochs=2)
    with torch.no_grad():
        surest = torch.softmax(result.model(test_images), 1).max(1).values
    assert result.accuracy > 0.9 and float(surest.median()) == pytest.approx(0.55, abs=0.1)


def test_labels_without_meaning_teach_nothing(digits, one_thread):
    images, labels, test_images, test_labels = digits
    shuffled = labels[torch.randperm(10_000, generator=torch.Generator().manual_seed(0))]
    result = train_student(
        images[:3000], shuffled[:3000], test_images, test_labels, classes=10, epochs=1
    )
    assert result.accuracy < 0.35


def test_a_class_without_test_images_has_no_accuracy(digits, one_thread):
    images, labels, test_images, test_labels = digits
    odd = test_labels != 4
    result = train_student(
        images[:50], labels[:50], test_images[odd], test_labels[odd], classes=10, epochs=1
    )
    assert math.isnan(result.per_class[4])
    assert not any(math.isnan(result.per_class[c]) for c in range(10) if c != 4)


def test_one_image_is_enough_to_run(one_thread):
    image, label = torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64)
    result = train_student(image, label, image, label, classes=2, epochs=1)
    assert result.accuracy in (0.0, 1.0)


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda i, y: (i, y[:1], i, y), ValueError, "images: 2 images and 1 labels"),
        (lambda i, y: (i, y, i[:0], y[:0]), ValueError, "test_images: 0 images"),
        (lambda i, y: (i, y + 9, i, y), ValueError, r"from 9 to 9, outside 0\.\.1"),
        (lambda i, y: (i, torch.full((2, 3), 1 / 3), i, y), ValueError, r"give \[n, 2\]"),
        (lambda i, y: (i, torch.full((2, 2), 0.4), i, y), ValueError, "make each sum to 1"),
        (lambda i, y: (i, torch.full((2, 2), torch.nan), i, y), ValueError, "sum to 1"),
        (lambda i, y: (i[0], y[:1], i, y), ShapeError, "images has shape"),
        (lambda i, y: (i[..., :20], y, i, y), ShapeError, "training images are .*20"),
        (lambda i, y: (i, y, i.expand(2, 3, 28, 28), y), ShapeError, "training images are"),
    ],
)
def test_wrong_arguments_are_named(spoil, error, said):
    images, labels = torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(error, match=said):
        train_student(*spoil(images, labels), classes=2, epochs=1)


def test_there_is_at_least_one_epoch():
    images, labels = torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="epochs=0"):
        train_student(images, labels, images, labels, classes=2, epochs=0)
