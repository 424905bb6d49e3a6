"""Studies of privatizers: each trains what a paper trained and puts its figures beside ours.

Simulation only: a study uses raw data without a budget, to say what a method would be worth.
"""

from __future__ import annotations

from fedlens.foundation.registry import Registry
from fedlens_research.framework.study import Study

MIXTURE = Study(
    "fedlens_research.papers.mixture",
    "a Gaussian mixture whose every filter's information is computable (Bertran et al., section "
    "7.2): how near training comes to what is possible",
)
SUBJECTS = Study(
    "fedlens_research.papers.subjects",
    "faces that one network recognises for consenting people only (Bertran et al., section 5.1)",
)
CLOAK = Study(
    "fedlens_research.papers.cloak",
    "how few pixels of a digit a service needs, and what attackers read from them "
    "(Mireshghallah et al., section 4)",
)
ATTRIBUTES = Study(
    "fedlens_research.papers.attributes",
    "one attribute of an image stays readable, another does not (Bertran et al., sections 5.2 "
    "and 5.3)",
)
ALPHA_IMAGES = Study(
    "fedlens_research.papers.alpha_images",
    "digits stay readable, their thickness does not, for orders of Arimoto's information "
    "(Jafarzadeh Asl et al., section IV-C)",
)
ALPHA_LOAD = Study(
    "fedlens_research.papers.alpha_load",
    "household loads that hide who is up, with and without side information (Jafarzadeh Asl et "
    "al., section IV-D)",
)
FEDERATED = Study(
    "fedlens_research.papers.federated",
    "a federation trains its own filter with user-level privacy, then a generator on filtered "
    "images: who still reads the sensitive attribute",
)
KERNEL = Study(
    "fedlens_research.papers.kernel",
    "one noised kernel mean embedding and a generator trained to it (Jiang et al.): what a run's "
    "samples have to be better than",
)

BASELINES = Study(
    "fedlens_research.papers.baselines",
    "what simpler releases (noise, blur, principal components, a FaderNet) tell of a secret where "
    "they keep as much of a use as our filter",
)

_NAMES = (
    "mixture",
    "subjects",
    "cloak",
    "attributes",
    "alpha-images",
    "alpha-load",
    "federated",
    "kernel",
    "baselines",
)
STUDIES: Registry[Study] = Registry(
    "study",
    "fedlens.studies",
    {name: f"fedlens_research.papers:{name.upper().replace('-', '_')}" for name in _NAMES},
)
"""Studies by name; a new one is a module, its TOML file, a declaration and its name here."""
