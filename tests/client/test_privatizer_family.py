"""A user's update in the privatizer's task, and users as they are seen behind a filter."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedlens.client.messages import FilterSettings, TrainRequest
from fedlens.client.node.file import open_node_users
from fedlens.client.tasks.privatizer import PrivatizerLocalTask
from fedlens.client.train import UserSeeds, train_cohort
from fedlens.client.update.clipping import clip_and_sum
from fedlens.client.users.protocol import ArrayUsers, LocalData, NodeDataError
from fedlens.client.users.records import CohortData, padded, sound_records
from fedlens.client.users.views import FilteredUsers, prepare_users
from fedlens.models.weights import to_vector
from fedlens.privatizers.methods import method_of
from fedlens.privatizers.networks.design import design, filter_network
from fedlens.privatizers.protocol import Batch, named_weights
from fedlens.server.config.mechanism import mechanism
from fedlens.server.config.tree import Config
from fedlens.server.tasks.privatizer import PrivatizerTask
from fedlens.server.tasks.protocol import TaskContext

DENSE = {
    "privatizer.network": "dense",
    "privatizer.width": 6,
    "tasks.privatizer.adversary_width": 5,
}
UNET = {"privatizer.width": 2, "tasks.privatizer.adversary_width": 2}
SENSITIVE = 3


@pytest.fixture
def hiding(users) -> ArrayUsers:
    """The users with a sensitive attribute of three classes; the third does not mind."""
    values = np.random.default_rng(4).integers(0, SENSITIVE, len(users.labels))
    hides = np.array([True, True, False, True, True, True, True])
    return replace(
        users,
        sensitive=values,
        sensitive_attribute="thickness",
        sensitive_classes=SENSITIVE,
        hides=hides,
    )


@pytest.fixture
def asked():
    """A request of the privatizer's task."""

    def make(*chosen: int, clip: float = 1e6, seed: int = 5, **changes: object) -> TrainRequest:
        given = {"rounds": 2, "clipping_norm": clip, **changes}
        beside = UNET if given.get("network") == "unet" else DENSE
        owned = {k: v for k, v in given.items() if k in ("network", "consenting")}
        config = Config().updated(
            {
                "schedule": "privatizer critic",
                "privatizer.kind": "trained",
                "privatizer.trained_by": "rounds",
                "tasks.privatizer.kind": "privatizer",
                **beside,
                **{f"privatizer.{k}": v for k, v in owned.items()},
                **{f"tasks.privatizer.{k}": v for k, v in given.items() if k not in owned},
            }
        )
        settings = config.tasks["privatizer"]
        task = PrivatizerTask(
            TaskContext(
                config=config,
                name="privatizer",
                shape=(1, 28, 28),
                classes=10,
                record_classes=10,
                sensitive_classes=SENSITIVE,
                generator_weights=lambda: np.zeros(0, np.float32),
            )
        )
        request = task.request()
        return TrainRequest(
            round=1,
            users=tuple(chosen),
            kind=settings.kind,
            mechanism=mechanism(config, settings),
            settings=request.settings.model_dump(),
            weights=request.weights,
            seed=seed,
            enrolled=7,
            key=b"a run's own key",
            records_per_user=10,
        )

    return make


def rows_of(users, request):
    critic = PrivatizerLocalTask(users, request)
    drawn = CohortData(users, request.users)
    return critic, critic.updates(drawn, seeds_of(users, request))


def seeds_of(users, request):
    return UserSeeds(users, request.key, request.round, request.users)


METHODS = [
    {"method": "information"},
    {"method": "alpha", "alpha": 2.0},
    {"method": "alpha", "alpha": 1.0},
    {"method": "information", "network": "unet", "consenting": 0.2},
]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.law("1: one user moves a sum by at most the clip")
def test_every_block_of_an_update_is_within_its_bound_and_the_whole_within_the_clip(
    hiding, asked, method
):
    request = asked(0, 2, 5, clip=0.01, **method)
    critic, rows = rows_of(hiding, request)
    bounds = critic._design.bounds(0.01)
    assert sum(bound**2 for bound in bounds.values()) == pytest.approx(0.01**2)
    for name, block in critic._design.split(rows).items():
        assert float(block.norm(dim=1).max()) <= bounds[name] * (1 + 1e-5), name
        assert float(block.norm(dim=1)[0]) > 0, name
    assert float(rows.norm(dim=1).max()) <= 0.01 * (1 + 1e-5)


def test_gradients_at_everybodys_scalars_add_up_to_that_of_the_squared_means(hiding, asked):
    """(1-a)A^2 + aB^2 over all records, by one gradient over all of them."""
    users = replace(hiding, hides=None)
    request = asked(0, 1, 3)
    critic = PrivatizerLocalTask(users, request)
    drawn, seeds = CohortData(users, request.users), seeds_of(users, request)
    held = padded(drawn, 10, users)
    parts = [critic._draw(held, user, seed) for user, seed in enumerate(seeds)]
    images, utility, sensitive, _, noise = (torch.cat(part) for part in zip(*parts, strict=True))
    method = critic._method
    weights = {
        network: {name: value.detach().requires_grad_() for name, value in named.items()}
        for network, named in named_weights(method.networks).items()
    }
    whole = method.local_step(weights, Batch(images, utility, sensitive), noise)
    slopes = torch.autograd.grad(whole.losses["filter"], list(weights["filter"].values()))
    critic._shared = whole.scalars  # everybody's
    found = critic._design.split(critic.updates(drawn, seeds).mean(0))
    expected = -torch.cat([slope.reshape(-1) for slope in slopes])
    assert torch.allclose(found["filter"], expected, atol=1e-6, rtol=1e-3)
    scalars = critic._design.decoded(found["scalars"], critic._bounds["scalars"])
    assert torch.allclose(scalars, whole.scalars, atol=1e-5)
    shares = found["shares"] / critic._bounds["shares"]
    assert torch.allclose(shares, torch.bincount(sensitive, minlength=3) / len(sensitive))


def test_a_users_row_depends_on_no_one_else(hiding, asked):
    _, together = rows_of(hiding, asked(0, 1, 2, 3))
    _, alone = rows_of(hiding, asked(2))
    assert torch.allclose(together[2], alone[0], atol=1e-5, rtol=1e-3)
    assert not torch.allclose(together[1], together[2], atol=1e-3)
    _, again = rows_of(hiding, replace(asked(2), key=b"another run's"))
    assert not torch.allclose(alone, again, atol=1e-5)  # other noise of the filter


def test_who_has_nothing_adds_nothing_and_who_breaks_the_networks_neither(hiding, asked):
    images = hiding.images

    class Glaring:
        """User 1's pixels overflow the networks."""

        shape, classes, partition = hiding.shape, 10, 0
        sensitive_attribute, sensitive_classes = "thickness", SENSITIVE

        def __len__(self):
            return 7

        def user_id(self, position):
            return position

        def user(self, position, rows=None):
            data = hiding.user(position, rows)
            return replace(data, images=data.images * 1e38) if position == 1 else data

    assert len(images)
    _, rows = rows_of(Glaring(), asked(0, 1, 6, clip=0.5))
    assert float(rows[2].abs().max()) == 0
    assert not bool(torch.isfinite(rows[1]).all())
    total, norms = clip_and_sum(rows, 0.5)
    torch.testing.assert_close(total, rows[0].double(), rtol=0, atol=0.5 * 2.0**-30)
    assert float(norms[1]) == 0
    reply = train_cohort(Glaring(), asked(0, 1, 6, clip=0.5))
    assert np.isfinite(reply.total).all() and np.linalg.norm(reply.total) <= 0.5 * (1 + 1e-6)


def test_who_consents_has_no_share_in_the_sensitive_attribute(hiding, asked):
    critic, rows = rows_of(hiding, asked(1, 2, network="unet", consenting=0.2))
    blocks = critic._design.split(rows)
    assert float(blocks["shares"][1].abs().max()) == 0
    assert float(blocks["adversary"][1].abs().max()) == 0  # nothing of theirs to read
    assert float(blocks["shares"][0].sum()) == pytest.approx(critic._bounds["shares"])


def test_records_of_an_unknown_value_are_as_if_they_were_not_there(hiding):
    sensitive = hiding.sensitive.copy()
    sensitive[:10] = [-1, 3, 0, 1, 2, 0, 1, 2, 99, 0]
    data = sound_records(replace(hiding, sensitive=sensitive), 0)
    assert data.sensitive.tolist() == [0, 1, 2, 0, 1, 2, 0] and len(data.images) == 7
    assert data.hides.tolist() == [[1.0]] * 7


def test_a_user_whose_bits_differ_hides_and_fails_no_one(tmp_path):
    source = np.random.default_rng(0)
    arrays = {
        "images": source.integers(0, 256, (6, 1, 28, 28), dtype=np.uint8),
        "labels": np.arange(6),
        "users": np.array([4, 4, 7, 7, 9, 9]),
        "classes": np.array(10),
        "sensitive": np.arange(6) % 2,
        "sensitive_attribute": np.array("thickness"),
        "sensitive_classes": np.array(2),
        "hides": np.array([False, False, True, False, True, True]),
    }
    np.savez(tmp_path / "users.npz", **arrays)
    opened = open_node_users(
        SimpleNamespace(run_config={}, node_config={"data": str(tmp_path / "users.npz")})
    )
    told = [bool(opened.user(i).hides.all()) for i in range(3)]
    assert told == [False, True, True]


def test_who_hides_nothing_does_not_move_a_mean_over_those_who_hide(hiding, asked):
    request = asked(2, 5, method="alpha", alpha=2.0, network="unet", consenting=0.2)
    critic, rows = rows_of(hiding, request)
    told = critic._design.split(rows)["scalars"]
    assert float(told[0].abs().max()) == 0
    assert float(told[1].abs().max()) > 0


@pytest.mark.parametrize(
    "change",
    [{"sensitive_attribute": "age"}, {"sensitive_classes": 1}, {"sensitive_attribute": ""}],
)
def test_a_node_without_the_sensitive_attribute_takes_no_part(hiding, asked, change):
    with pytest.raises(NodeDataError, match="hides 'thickness'"):
        PrivatizerLocalTask(replace(hiding, **change), asked(0))


def test_one_class_cannot_be_hidden(asked):
    settings = dict(asked(0).settings)
    with pytest.raises(ValueError, match="one class"):
        design(settings, (1, 28, 28), 10, 1)
    with pytest.raises(ValueError, match="no privatizer 'magic'"):
        design({**settings, "method": "magic"}, (1, 28, 28), 10, 2)
    with pytest.raises(ValueError, match="too small"):
        design({**settings, "method": "alpha", "alpha": 0.005}, (1, 28, 28), 10, 2)


def test_a_prior_with_an_absent_class_still_builds(asked):
    settings = dict(asked(0).settings)
    planned = design(settings, (1, 28, 28), 10, 3)
    method = method_of(settings).build(planned.networks, settings, torch.tensor([1.0, 0.0, 0.0]))
    assert torch.isfinite(method.log_prior).all()


# Behind the filter


def filtering(request: TrainRequest, vector, **changes) -> TrainRequest:
    return replace(request, filter=told(**changes), weights={"filter": vector})


def told(**changes) -> FilterSettings:
    """What nodes need to run the filter."""
    given = {
        "network": "dense",
        "width": DENSE["privatizer.width"],
        "consenting": 0.0,
        "output_noise_std": 0.0,
        "capacity": 0.0,
        "highest_frequency": 0,
        "sensitive_attribute": "thickness",
        "pairs": False,
    }
    return FilterSettings(**{**given, **changes})


@pytest.fixture
def vector():
    """A filter with weights that change an image visibly."""
    network = filter_network(told().model_dump(), (1, 28, 28))
    with torch.no_grad():
        network.correct.weight.mul_(100)
    return to_vector(network)


def test_users_are_filtered_once_with_noise_of_their_own(hiding, asked, vector):
    request = filtering(asked(0), vector)
    shown = prepare_users(hiding, request)
    assert isinstance(shown, FilteredUsers) and prepare_users(hiding, request) is shown
    assert prepare_users(hiding, filtering(asked(0), vector * 2)) is not shown
    assert prepare_users(replace(hiding), request) is not shown
    raw, found = hiding.user(0), shown.user(0)
    assert (shown.classes, shown.shape, len(shown)) == (10, (1, 28, 28), 7)
    assert torch.equal(found.labels, raw.labels) and found.sensitive is None
    assert float((found.images - raw.images).abs().mean()) > 0.01
    assert float(found.images.abs().max()) <= 1
    again = FilteredUsers.of(replace(hiding, partition=1), vector, told(), request.key, 10)
    again.user(3)  # whichever user was asked for before, and whatever the node
    assert torch.equal(again.user(0).images, found.images)
    renamed = replace(hiding, ids=np.arange(7) + 1)
    other = FilteredUsers.of(renamed, vector, told(), request.key, 10)
    assert not torch.equal(other.user(0).images, found.images)
    other = FilteredUsers.of(hiding, vector, told(), b"another run's", 10)
    assert not torch.equal(other.user(0).images, found.images)
    assert len(shown.user(6).labels) == 0


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.law("1: seeds belong to the user")
def test_a_records_noise_is_its_own_whatever_else_the_user_holds(hiding, asked, vector, unit):
    request = filtering(asked(0), vector)
    request = replace(request, mechanism=request.mechanism.model_copy(update={"unit": unit}))
    whole = prepare_users(hiding, request).user(0).images
    fewer = replace(hiding, indices=np.delete(hiding.indices, 4), offsets=hiding.offsets - 1)
    fewer.offsets[0] = 0
    left = prepare_users(fewer, request).user(0).images
    assert torch.allclose(left, whole[[0, 1, 2, 3, 5, 6, 7, 8, 9]], atol=1e-6)
    turned = hiding.indices.copy()
    turned[:10] = turned[:10][::-1]
    assert torch.allclose(
        prepare_users(replace(hiding, indices=turned), request).user(0).images,
        whole.flip(0),
        atol=1e-6,
    )


def test_filtered_images_go_with_the_users_they_were_made_of(hiding, asked, vector):
    users = replace(hiding)
    shown = prepare_users(users, filtering(asked(0), vector))
    shown.user(0)
    gone = weakref.ref(shown)
    del shown
    assert gone() is not None  # kept for the next round
    del users
    gc.collect()
    assert gone() is None


def test_conditioned_classes_are_pairs_of_class_and_sensitive_attribute(hiding, asked, vector):
    shown = prepare_users(hiding, filtering(asked(0), vector, pairs=True))
    raw, found = hiding.user(1), shown.user(1)
    assert shown.classes == 30
    assert torch.equal(found.labels // 3, raw.labels) and torch.equal(
        found.labels % 3, raw.sensitive
    )
    ignorant = replace(hiding, sensitive=None, sensitive_attribute="", sensitive_classes=0)
    with pytest.raises(NodeDataError, match="conditions on"):
        prepare_users(ignorant, filtering(asked(0), vector, pairs=True))


def test_without_a_filter_users_are_as_they_are(hiding, make_request):
    shown = prepare_users(hiding, make_request(0))
    assert not isinstance(shown, FilteredUsers)
    assert torch.equal(shown.user(2).images, hiding.user(2).images)


def test_a_filter_that_cannot_be_run_shows_nothing(hiding, make_request, vector):
    """Rather than images as they are: the settings or the weights have been left out."""
    request = make_request(0)
    for incomplete in (
        replace(request, filter=told()),
        replace(request, weights={**request.weights, "filter": vector}),
    ):
        with pytest.raises(NodeDataError, match="lacks"):
            prepare_users(hiding, incomplete)


@pytest.mark.parametrize("kind", ["frozen", "wgan"])
def test_critics_meet_filtered_images_alone(hiding, make_request, kind):
    """A filter that answers with black images makes all users of equal classes alike."""
    network = filter_network(told().model_dump(), (1, 28, 28))
    with torch.no_grad():
        network.correct.bias.fill_(-1e3)
    request = make_request(0, kind=kind, clipping_norm=1.0)
    weights = {**request.weights, "filter": to_vector(network)}
    black = replace(request, filter=told(), weights=weights)
    inverted = replace(hiding, images=255 - hiding.images)
    totals = [train_cohort(prepare_users(u, black), black).total for u in (hiding, inverted)]
    plain = [train_cohort(u, replace(black, weights=request.weights)).total for u in
             (hiding, inverted)]  # fmt: skip
    assert np.array_equal(*totals) and not np.allclose(*plain)


def test_local_data_without_sensitive_values_is_what_it_was(users):
    data = users.user(0)
    assert data.sensitive is None and data.hides is None
    assert LocalData(data.images, data.labels).sensitive is None
