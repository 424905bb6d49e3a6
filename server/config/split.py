"""The section of the private split: users on one side of how well a fixed model does on them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedlens.server.config.section import Probability, Section, require

MOST_SCORED = 256


class SplitConfig(Section):
    """A private split: each device finds out on which side its user is; no release says who."""

    side: Literal["none", "below", "from"] = "none"
    """Which users the run learns from: those whose score lies ``below`` the threshold, or those
    whose score lies at it or above, ``from`` it on. All others contribute zeros, as users without
    records do. ``none``: everyone."""
    model: str = ""
    """Absolute path of the run whose released annotator scores each user's records. It travels in
    every request, and what that run cost is in this run's figures."""
    rule: Literal["recognised", "confidence"] = "recognised"
    """A user's score: the share of records whose label the model finds likeliest (``recognised``),
    or the mean probability that it gives their labels (``confidence``)."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Score at which the sides meet: fixed beforehand, public."""
    records: Annotated[int, Field(gt=0, le=MOST_SCORED)] = 16
    """Records of a user that are scored at most. The split's own key draws them, so that they are
    the same in every run on it."""
    share: Probability = 1.0
    """Share of the users that is expected on the side. It is part of the fixed number that sums are
    divided by, and a guess: the true share is private. 1 makes releases small, never less
    private."""
    other_people: bool = False
    """Declare that no user of this run was one of the model's: its cost is then left out."""

    @property
    def active(self) -> bool:
        """Whether the run is about one side."""
        return self.side != "none"

    @property
    def expected(self) -> float:
        """Share of the enrolled users that sums are reckoned to be of."""
        return self.share if self.active else 1.0

    @model_validator(mode="after")
    def _names_a_model(self) -> SplitConfig:
        mend = "name a run with a released annotator in split.model too"
        require(not self.active or bool(self.model), "split.side", self.side, mend)
        return self
