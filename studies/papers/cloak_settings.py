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

    Raises:
        StudyError: on a path that does not rise, or a reported ratio that is not on it.
    """

    source: str  # private data with the utility "above 5" and the digit as sensitive attribute
    protected: str  # source of the same images whose sensitive attribute is the protected attribute
    provider_epochs: int  # passes of the provider's training
    most: float  # M, greatest σ, in the records' units ([-1, 1])
    gamma: float  # weight of the privacy term
    rate: float  # Adam's for the noise map
    batch: int  # records a step
    ratios: tuple[float, ...]  # the path of suppression ratios, from 0 up
    steps: tuple[int, ...]  # of the noise map at each, on the provider
    # share of these steps that a map takes on a substitute, in (0, 1]; the provider is asked all
    # along
    black_share: float
    reported: tuple[float, ...]  # those of ``ratios`` that are judged
    value_steps: int  # of the trained constants
    value_rate: float  # Adam's for these
    black_box: bool  # also do it with a substitute
    substitute_steps: int  # of the substitute's training
    # steps of a filter after which the provider is asked about what it releases and the substitute
    # learns from the answers
    follow_every: int
    follow_queries: int  # records that it is asked about each time
    follow_steps: int  # of the substitute each time
    attackers: tuple[str, ...]  # names; see `studies.attackers`
    attack_records: int  # that they are fitted on
    repeats: int  # draws of noise over which accuracies are averaged
    index_records: int  # of the ITE-style index, which depends on their number

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
