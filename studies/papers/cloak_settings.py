"""Settings of the study ``cloak``."""

from __future__ import annotations

from dataclasses import dataclass

from privatizers.networks.masks import NoiseMap
from studies.attackers import ATTACKERS
from studies.framework.errors import StudyError
from studies.framework.settings import check_names


@dataclass(frozen=True)
class CloakSettings:
    """Of the study; see `cloak.toml`.

    Attributes:
        source: private data with the utility "above 5" and the digit as sensitive attribute.
        protected: source of the same images whose sensitive attribute is the protected attribute.
        provider_epochs: passes of the provider's training.
        most: M, greatest σ, in the records' units ([-1, 1]).
        gamma: weight of the privacy term.
        rate: Adam's for the noise map.
        batch: records a step.
        ratios: the path of suppression ratios, from 0 up.
        steps: of the noise map at each, on the provider.
        black_share: share of these steps that a map takes on a substitute, in (0, 1]; the provider
            is asked all along.
        reported: those of ``ratios`` that are judged.
        value_steps: of the trained constants.
        value_rate: Adam's for these.
        black_box: also do it with a substitute.
        substitute_steps: of the substitute's training.
        follow_every: steps of a filter after which the provider is asked about what it releases
            and the substitute learns from the answers.
        follow_queries: records that it is asked about each time.
        follow_steps: of the substitute each time.
        attackers: names; see `studies.attackers`.
        attack_records: that they are fitted on.
        repeats: draws of noise over which accuracies are averaged.
        index_records: of the ITE-style index, which depends on their number.

    Raises:
        StudyError: on a path that does not rise, or a reported ratio that is not on it.
    """

    source: str
    protected: str
    provider_epochs: int
    most: float
    gamma: float
    rate: float
    batch: int
    ratios: tuple[float, ...]
    steps: tuple[int, ...]
    black_share: float
    reported: tuple[float, ...]
    value_steps: int
    value_rate: float
    black_box: bool
    substitute_steps: int
    follow_every: int
    follow_queries: int
    follow_steps: int
    attackers: tuple[str, ...]
    attack_records: int
    repeats: int
    index_records: int

    def __post_init__(self) -> None:
        if len(self.ratios) != len(self.steps) or list(self.ratios) != sorted(set(self.ratios)):
            raise StudyError(
                f"ratios={self.ratios}, steps={self.steps}: give rising ratios, steps for each"
            )
        if not 0 < self.black_share <= 1:
            raise StudyError(f"black_share={self.black_share} must lie in (0, 1]")
        if not all(0 <= ratio < 1 for ratio in self.ratios):
            raise StudyError(f"ratios={self.ratios} must lie in [0, 1): something has to be sent")
        if not self.reported:
            raise StudyError("reported must name at least one of the ratios")
        check_names("attackers", self.attackers, ATTACKERS)
        NoiseMap((1, 1, 1), self.most)  # refuses noise that is none
        if self.follow_every < 1 or self.follow_queries < 1 or self.follow_steps < 1:
            raise StudyError(
                f"follow_every={self.follow_every}, follow_queries={self.follow_queries}, "
                f"follow_steps={self.follow_steps}: each must be at least 1"
            )
        if strange := set(self.reported) - set(self.ratios):
            raise StudyError(f"reported: {sorted(strange)} are not among the ratios")
