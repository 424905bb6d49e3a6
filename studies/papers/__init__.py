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
        "studies.papers.mixture",
        "a Gaussian mixture whose every filter's information is computable (paper 000, section "
        "7.2): how near training comes to what is possible",
    ),
    "subjects": Entry(
        "studies.papers.subjects",
        "faces that one network recognises for consenting people only (paper 000, section 5.1)",
    ),
    "cloak": Entry(
        "studies.papers.cloak",
        "how few pixels of a digit a service needs, and what attackers read from them (paper 001, "
        "section 4)",
    ),
    "attributes": Entry(
        "studies.papers.attributes",
        "one attribute of an image stays readable, another does not (paper 000, sections 5.2 and "
        "5.3)",
    ),
    "alpha-images": Entry(
        "studies.papers.alpha_images",
        "digits stay readable, their thickness does not, for orders of Arimoto's information "
        "(paper 002, section IV-C)",
    ),
    "alpha-load": Entry(
        "studies.papers.alpha_load",
        "household loads that hide who is up, with and without side information (paper 002, "
        "section IV-D)",
    ),
    "federated": Entry(
        "studies.papers.federated",
        "a federation trains its own filter with user-level privacy, then a generator on filtered "
        "images: who still reads the secret",
    ),
}
"""Studies by name; a new one is a module, its TOML file and one line here."""
