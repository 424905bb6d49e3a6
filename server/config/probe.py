"""The settings of a probe, a task that asks users one number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fedlens.accountant.ledger.spending import PROBE
from fedlens.accountant.probing import released_by
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.section import NoiseMultiplier
from fedlens.server.config.tasks import TaskConfig, TaskKind


def _a_question(value: str) -> str:
    # probes are written with torch, which settings must not take the time to load
    from fedlens.models.probes.asking import parse_probe

    try:
        parse_probe(value)
    except WrongUse as error:
        raise ValueError(str(error)) from None
    return value


class ProbeConfig(TaskConfig):
    """A question with one bounded number a user for an answer; the mean over users is released.

    Every enrolled user is asked where ``sampling_rate`` is 1. User mode alone.
    """

    of_all_users = True

    kind: Literal["probe"] = "probe"
    noise_multiplier: NoiseMultiplier = 14.0
    clipping_norm: Annotated[float, Field(gt=0, le=1)] = 1.0
    """C: a user's number lies in [0, 1] and is cut to this, so one user moves the sum by C."""
    probe: Annotated[str, AfterValidator(_a_question)] = "dark_border"
    """The question, ``NAME`` or ``NAME:ARGUMENT``, such as ``better_after:rotate270``."""
    model: str = ""
    """Absolute path of the run whose released annotator is asked, for probes that ask a network.
    Empty: the annotator of this run, which must come before."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return released_by(self.probe)

    @property
    def reads_labels(self) -> bool:
        """Whether the question is about labels, or asks a network that knows them."""
        from fedlens.models.probes.asking import parse_probe

        return parse_probe(self.probe).about_labels

    @property
    def purpose(self) -> str:
        """What the ledger says that a round is for."""
        return PROBE

    @property
    def positive(self) -> bool:
        """Numbers of users lie in [0, 1]."""
        return True

    @property
    def asked(self) -> str:
        """The probe that users are asked, as it is written; empty for none."""
        return self.probe

    @property
    def asked_run(self) -> str:
        """Folder of another run whose released network travels with the question; empty: none."""
        return self.model


PROBING = TaskKind(ProbeConfig, "fedlens.server.tasks.probe:ProbeTask")
