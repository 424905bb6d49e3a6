"""The section of the privatizer: a filter that users train together, or samples, or another run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from server.config.checks import check_mechanism, not_negative, one_of, positive, require

ROUNDS = ("information", "alpha")
"""Methods whose filter users train in rounds of their own."""
SYNTHETIC = "synthetic"
PRETRAINED = "pretrained"
METHODS = (*ROUNDS, SYNTHETIC, PRETRAINED)
NETWORKS = ("unet", "dense", "code")
MOST_OUTPUT_NOISE_STD = 2.0
_MECHANISM = ("sampling_rate", "noise_multiplier", "clipping_norm")
_OF_ROUNDS = ("alpha", "weight", "readers", "batch", "optimiser", "filter_share", "smoothing")
UNHEEDED = {
    "information": ("budget", "distortion", "output_noise_std", "steps", "weight", "filter"),
    "alpha": ("budget", "distortion", "output_noise_std", "steps", "filter"),
    SYNTHETIC: (*_MECHANISM, *_OF_ROUNDS, "condition", "filter"),
    PRETRAINED: (
        *_MECHANISM,
        *_OF_ROUNDS,
        "rate",
        "adversary_rate",
        "budget",
        "distortion",
        "steps",
    ),
}
"""Settings that a method does not look at."""


@dataclass(frozen=True)
class PrivatizerConfig:
    """A filter that hides a secret of every record.

    By ``information`` and ``alpha`` the federation trains it in a part of its own, the first. In
    all later ones nodes filter their images before anything else is made of them, so that neither
    critics nor annotator meet an unfiltered image. Users are protected by the same mechanism and
    ledger as in the other parts.

    By ``synthetic`` the other parts come first, with pairs of class and secret in the classes'
    place; then the filter is trained on samples, which is post-processing and costs no privacy, and
    every sample that is stored went through it.

    By ``given`` it is the filter of another run, whatever its method: nodes filter their images
    with it from the first round on. What its training cost is in that run's ledger.
    """

    method: str = ""
    """``information``: least use lost and secret left, in nats. ``alpha``: Arimoto's order-α
    uncertainty of an adversary. ``synthetic``: fitted on the run's own samples, with no rounds of
    its own. ``given``: another run's. Empty where there is no filter."""
    rounds: int = 0
    """Rounds, each with one release; 0 for no privatizer."""
    sampling_rate: float = 1.0
    """q of this part, as in the section ``privacy``."""
    noise_multiplier: float = 8.0
    """z of this part, relative to its own clipping norm, as in the section ``privacy``."""
    clipping_norm: float = 0.1
    """C of this part: L2 bound of a user's whole update. Its blocks (each player's gradient, the
    shared scalars, the shares of the secret's classes) are clipped to fixed shares of it."""
    sensitive_attribute: str = "thickness"
    """Attribute to be hidden. Simulated: ``thickness`` (of a digit's strokes, against the median of
    its class) or ``column`` (the arrays train_sensitive and test_sensitive of ``npz:PATH``)."""
    alpha: float = 0.5
    """``information``: from 0 (keep the use at any price) to 1 (hide the secret at any price).
    ``alpha``: the order, above 0; 1 is Shannon's."""
    weight: float = 1.0
    """``alpha``: weight of the adversary's uncertainty beside distortion and use."""
    network: str = "unet"
    """``unet``: a U-Net, read by small convolutional networks. ``dense``: one hidden layer over all
    pixels, read by the like: about five times as fast, for small aligned images. ``code``: all that
    is released passes a few noisy numbers; for ``synthetic``, and a ``given`` one of that kind."""
    width: int = 4
    """Channels of the U-Net at full size or at half size before and after the code, or units of the
    dense filter."""
    readers: int = 4
    """Channels of the first convolution of the networks that read use and secret, or their hidden
    units."""
    batch: int = 10
    """Records of a user that enter a round, drawn with repetition where there are fewer."""
    rate: float = 0.001
    """Learning rate of the server's step on the filter."""
    adversary_rate: float = 0.001
    """Learning rate of the server's step on the networks that read use and secret."""
    optimiser: str = "adam"
    """Those steps, on noisy mean gradients: ``adam`` or ``sgd``."""
    lead: int = 0
    """First rounds in which the filter rests while the readers learn."""
    filter_share: float = 0.4
    """Share of C², in (0, 1), that bounds the filter's block; the readers' have the rest, less
    what the scalars and the secret's shares take."""
    smoothing: float = 0.8
    """Decay of the moving averages of scalars and shares of the secret's classes, in [0, 1)."""
    consenting: float = 0.0
    """Simulated share of users who do not mind: the filter is told so of each record and hides
    nothing of theirs (``code``: lets their images pass as they are). 0 leaves that input out."""
    condition: bool = False
    """Whether the generator's classes are pairs of class and secret (class x secrets + secret), for
    the strongest test: an attacker that is trained on samples of requested secrets. Always so by
    ``synthetic``."""
    budget: float = 0.003
    """``synthetic``: nats of the secret that an adversary may read before the filter is pressed. A
    fresh one that reads no more of samples ends the training."""
    distortion: float = 0.0
    """``synthetic``: weight of the mean squared change of a pixel (their range is 2) beside the
    nats of use that are lost. At 0 released images need not look like anything to people."""
    output_noise_std: float = 0.1
    """``code``: standard deviation of fresh noise on each released pixel (their range is 2). The
    filter is fitted with .1 of it at most; more drowns what it lets through of single real images,
    which it has never met."""
    steps: int = 800
    """``synthetic``: steps of the filter against its first adversary, each after three of it; half
    as many, each after four, against each of the fresh ones that still read the secret."""

    filter: str = ""
    """``given``: the folder of the finished run whose filter is taken, an absolute path on the
    server's machine (`fedlens simulate` makes it one). Its ``secret``, ``network``, ``width``,
    ``grain`` and whether there is ``consenting`` must be the same here."""

    def __post_init__(self) -> None:
        check_mechanism(self, "privatizer")
        require(
            not ((self.synthetic or self.given) and (self.rounds or self.lead)),
            "privatizer.rounds",
            self.rounds,
            f"method {self.method!r} has no rounds of its own: set rounds and lead to 0",
        )
        require(
            not self.given or bool(self.filter),
            "privatizer.filter",
            self.filter,
            "method 'given' takes another run's filter: name that run's folder",
        )
        if self.rounds:
            one_of("privatizer.method", self.method, ROUNDS)
        else:
            one_of("privatizer.method", self.method, ("", *METHODS))
            require(
                self.method not in ROUNDS,
                "privatizer.method",
                self.method,
                "without rounds it hides nothing: set privatizer.rounds, or method to ''",
            )
        require(
            not self.active or bool(self.sensitive_attribute),
            "privatizer.sensitive_attribute",
            self.sensitive_attribute,
            "name what is hidden",
        )
        one_of("privatizer.network", self.network, NETWORKS)
        one_of("privatizer.optimiser", self.optimiser, ("adam", "sgd"))
        positive(self, "privatizer", "width", "readers", "batch", "rate", "adversary_rate")
        positive(self, "privatizer", "steps")
        not_negative(self, "privatizer", "rounds", "lead", "weight")
        not_negative(self, "privatizer", "budget", "distortion", "output_noise_std")
        require(
            self.output_noise_std <= MOST_OUTPUT_NOISE_STD,
            "privatizer.output_noise_std",
            self.output_noise_std,
            f"nothing is left of pixels, whose range is 2: give at most {MOST_OUTPUT_NOISE_STD:g}",
        )
        self._check_order()
        for name in ("smoothing", "consenting"):
            share = getattr(self, name)
            require(0 <= share < 1, f"privatizer.{name}", share, "give a share in [0, 1)")
        share = self.filter_share
        require(0 < share < 1, "privatizer.filter_share", share, "give a share in (0, 1)")
        require(
            self.lead < self.rounds or not self.lead,
            "privatizer.lead",
            self.lead,
            f"the filter needs rounds too: give fewer than privatizer.rounds = {self.rounds}",
        )
        require(
            self.consenting == 0 or self.network != "dense",
            "privatizer.consenting",
            self.consenting,
            "privatizer.network = 'dense' cannot be told of each record; leave it at 0",
        )
        require(
            not self.condition or self.active,
            "privatizer.condition",
            self.condition,
            "there is no secret without a privatizer: set privatizer.rounds, or leave it false",
        )
        coded = self.network == "code"
        require(
            coded == self.synthetic or self.given or not self.active,
            "privatizer.network",
            self.network,
            "'code' and privatizer.method = 'synthetic' belong together",
        )

        self._refuse_unheeded()

    @property
    def synthetic(self) -> bool:
        """Whether the filter is trained on samples, after everything else."""
        return self.method == SYNTHETIC

    @property
    def given(self) -> bool:
        """Whether the filter is another run's."""
        return self.method == PRETRAINED

    @property
    def active(self) -> bool:
        """Whether the run hides anything."""
        return self.rounds > 0 or self.synthetic or self.given

    @property
    def reads_sensitive(self) -> bool:
        """Whether nodes must know the secret of their records: a given filter hides it as it is."""
        return self.active and (self.condition or not self.given)

    @property
    def pairs(self) -> bool:
        """Whether the generator's classes are pairs of class and secret."""
        return self.condition or self.synthetic

    def _refuse_unheeded(self) -> None:
        """Refuse a setting that was changed and that this method does not look at."""
        if not self.active:
            return
        for name in UNHEEDED[self.method]:
            self._refuse_changed(name, f"method {self.method!r}")
        if self.network != "code":
            self._refuse_changed("output_noise_std", f"network {self.network!r}")

    def _refuse_changed(self, name: str, who: str) -> None:
        value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
        why = f"{who} does not look at it: leave it at {default!r}"
        require(value == default, f"privatizer.{name}", value, why)

    def _check_order(self) -> None:
        alpha = self.alpha
        if self.method == "alpha":
            holds = math.isfinite(alpha) and alpha > 0
            require(holds, "privatizer.alpha", alpha, "give a number above 0; 1 is Shannon's order")
        else:
            require(0 <= alpha <= 1, "privatizer.alpha", alpha, "give a number in [0, 1]")
