"""Studies of privatizers: each trains what a paper trained and puts its figures beside ours.

Simulation only: a study uses raw data without a budget, to say what a method would be worth.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A study that can be run by name.

    Attributes:
        module: which has ``COLUMNS``, a ``Settings`` class and ``run``; see `studies.frame`.
        about: one sentence for ``--help``.
    """

    module: str
    about: str


STUDIES: dict[str, Entry] = {
    "mixture": Entry(
        "simulations.studies.mixture",
        "a Gaussian mixture whose every filter's information is computable (paper 000, section "
        "7.2): how near training comes to what is possible",
    ),
    "subjects": Entry(
        "simulations.studies.subjects",
        "faces that one network recognises for consenting people only (paper 000, section 5.1)",
    ),
}
"""Studies by name; a new one is a module, its TOML file and one line here."""
