"""Attacks on a filter from its file alone, by attackers who have its weights and by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse, require_names
from fedlens.privatizers.export import one_thread

if TYPE_CHECKING:
    from torch import nn

    from fedlens.privatizers.attacks.filter_attack import FilterAttack

DEFAULT_DATA = "embedded-mnist-thickness"
SHOWN = 5
"""Values of an attribute that a line names."""
REPEATED = (
    "releases of a record have one noise, as of devices with a key: several are as one; "
    "--fresh-noise attacks those of a device without"
)


@dataclass(frozen=True)
class AttackSettings:
    """Who attacks a filter, and with what.

    Attributes:
        releases: numbers of releases of each record that attackers see.
        attackers: by name, and no others; by default all that look at records, and ``formula``,
            which computes the attribute where the source has a formula of it.
        records: labelled records that attackers have at most; by default all that there are
            outside the test part, those that the filter learned from included.
        quick: fewer records and steps; for a look.
        fresh_noise: several releases of a record have noise of their own also where the filter asks
            devices to repeat it: what a device without a key releases.
        trusted: a .pt2 may run code here, which it can when it is read; needed for one.
        seed: of how the source is dealt, of noise and attackers.
        data_dir: folder of data files.

    Raises:
        WrongUse: naming the setting that cannot be used.
    """

    releases: Sequence[int] = (1,)
    attackers: Sequence[str] = ()
    records: int | None = None
    quick: bool = False
    fresh_noise: bool = False
    trusted: bool = False
    seed: int = 0
    data_dir: Path | str | None = None

    def __post_init__(self) -> None:
        if not self.releases or min(self.releases) < 1:
            raise WrongUse(f"releases {list(self.releases)}: give whole numbers of at least 1")
        if self.records is not None and self.records < 100:
            raise WrongUse(f"records {self.records}: give at least 100")


def attack(
    path: Path | str,
    data: str = DEFAULT_DATA,
    settings: AttackSettings | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[FilterAttack]:
    """What each attacker reads of what a filter releases, in order.

    Simulation only: attackers learn from raw records of the source, which they filter themselves,
    and are scored on its test part.

    Args:
        path: a kept filter or a run's folder (as `fedlens.privatizer.load` takes), whose weights
            the attackers have; or an exported .pt2 or .onnx, of which they see releases alone.
        data: the source's name; its sensitive attribute is attacked.
        settings: who attacks, and with what; None: the usual.
        tell: is told how far it is, a line at a time.

    Raises:
        FedlensError: filter, data or an attacker cannot be used, or scikit-learn is not installed.
    """
    require_attackers()
    from fedlens.data.attributes import load_private
    from fedlens.privatizers.attacks.attackers import BLIND, FRESH, INFORMED, STRONG
    from fedlens.privatizers.attacks.attackers.formula import FORMULA
    from fedlens.privatizers.attacks.filter_attack import FULL, QUICK, attack_filter
    from fedlens.privatizers.attacks.targets import target_of

    asked = settings or AttackSettings()
    names = tuple(asked.attackers) or (*INFORMED, *STRONG, *FRESH, FORMULA)
    require_names("attackers", names, [*_looking(BLIND), FORMULA])
    network, shape, hidden = _opened(Path(path), asked.trusted)
    split = load_private(data, asked.data_dir, asked.seed)
    if split.test.shape != shape:
        raise WrongUse(
            f"data {data!r} has records {split.test.shape}, the filter takes {shape}; give data of "
            "the kind that it was trained on"
        )
    _tell_attribute(data, split.test.sensitive_names, hidden, tell)
    with one_thread():
        target = target_of(network, split, asked.seed, asked.records, fresh=asked.fresh_noise)
        if max(asked.releases) > 1 and target.told_apart(2) == 1:
            tell(REPEATED)
        effort, once = (QUICK if asked.quick else FULL), tuple(dict.fromkeys(asked.releases))
        return attack_filter(target, names, releases=once, effort=effort, tell=tell)


def require_attackers() -> None:
    """Refuse to go on without what attackers are made of.

    Raises:
        WrongUse: saying what to install.
    """
    if find_spec("sklearn") is None:
        raise WrongUse("attackers need scikit-learn: pip install 'fedlens[attacks]'")


def _looking(blind: Sequence[str]) -> list[str]:
    from fedlens.privatizers.attacks.attackers import ATTACKERS

    return [name for name in ATTACKERS if name not in blind]


def _tell_attribute(
    data: str, attacked: Sequence[str], hidden: Sequence[str], tell: Callable[[str], None]
) -> None:
    """Say what is attacked, and whether the filter was made to hide something else."""
    tell(f"attacked: the sensitive attribute of {data}{_listed(attacked)}")
    if hidden and tuple(attacked) != tuple(hidden):
        tell(
            f"NOT WHAT THE FILTER HIDES{_listed(hidden)}: to attack that, give by --data the "
            "records that it was made for"
        )


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > SHOWN else ""
    return f" ({', '.join(names[:SHOWN])}{more})" if names else ""


def _opened(path: Path, trusted: bool) -> tuple[nn.Module, tuple[int, ...], tuple[str, ...]]:
    from fedlens.api.privatizer import load
    from fedlens.privatizers.exported import SUFFIXES, ExportedFilter

    if path.suffix.lower() in SUFFIXES:
        network = ExportedFilter.open(path, trusted=trusted)
        return network, network.shape, ()
    if not path.exists():
        raise WrongUse(f"filter {path}: there is no such file or folder")
    loaded = load(path)
    return loaded.network, loaded.shape, loaded.sensitive_names
