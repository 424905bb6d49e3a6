"""Attacks on a filter from its file alone, by attackers who have its weights and by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedlens.foundation.errors import WrongUse, require_names
from fedlens.privatizers.export import one_thread

if TYPE_CHECKING:
    from torch import nn

    from fedlens.privatizers.attacks.claims import Claims
    from fedlens.privatizers.attacks.gate import GateReport
    from fedlens.privatizers.attacks.structure import Check
    from fedlens.privatizers.private_data import Split

ANEW = 7919
"""Keeps noise and attackers apart from those by which a study measured what it claims."""
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
        attackers: by name, and no others (``formula`` computes the attribute where the source has
            a formula of it); by default those that read most: of a filter that shows its code the
            likelihood ratio and a reader of codes, of others readers of releases.
        records: labelled records that attackers have at most; by default all that there are
            outside the test part, those that the filter learned from included.
        quick: fewer records and steps; for a look.
        fresh_noise: several releases of a record have noise of their own also where the filter asks
            devices to repeat it: what a device without a key releases.
        trusted: a .pt2 may run code here, which it can when it is read; needed for one.
        seed: of how the source is dealt, of noise and attackers; None: as the source was dealt for
            the filter, by its claims, else 0.
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
    seed: int | None = None
    data_dir: Path | str | None = None

    def __post_init__(self) -> None:
        if not self.releases or min(self.releases) < 1:
            raise WrongUse(f"releases {list(self.releases)}: give whole numbers of at least 1")
        if self.records is not None and self.records < 100:
            raise WrongUse(f"records {self.records}: give at least 100")


def attack(
    path: Path | str,
    data: str = "",
    settings: AttackSettings | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> GateReport:
    """Whether a filter does what its file claims: what it is made of, and what attackers read.

    Simulation only: attackers learn from raw records of the source, which they filter themselves,
    and are scored on its test part.

    Args:
        path: a kept filter or a run's folder (as `fedlens.privatizer.load` takes), whose weights
            the attackers have; or an exported .pt2 or .onnx, of which they see releases alone.
        data: the source's name; its sensitive attribute is attacked. Empty: what the file says
            that it was made for; of one that says nothing only the structure is looked at.
        settings: who attacks, and with what; None: the usual.
        tell: is told how far it is, a line at a time.

    Raises:
        FedlensError: filter, data or an attacker cannot be used, or scikit-learn is not installed.
    """
    require_attackers()
    from fedlens.privatizers.attacks.attackers.formula import FORMULA
    from fedlens.privatizers.attacks.gate import GateReport
    from fedlens.privatizers.attacks.structure import check_structure

    asked = settings or AttackSettings()
    _require_looking(asked.attackers, FORMULA)
    opened = _opened(Path(path), asked.trusted)
    source = data or ("" if opened.claims is None else opened.claims.data)
    with one_thread():
        if source:
            return _attacked(opened, source, asked, tell, named=bool(data))
        tell("--data: neither you nor the file names records: its structure alone is looked at")
        checks = [*check_structure(opened.network, opened.shape), _no_records()]
    return GateReport("", None, tuple(checks))


def _attacked(
    opened: _Opened, data: str, asked: AttackSettings, tell: Callable[[str], None], *, named: bool
) -> GateReport:
    """Look at the structure, attack, compare with the claims."""
    from fedlens.data.attributes.options import without_path
    from fedlens.privatizers.attacks.filter_attack import QUICK, USUAL
    from fedlens.privatizers.attacks.gate import gate, measure_filter
    from fedlens.privatizers.attacks.structure import check_structure
    from fedlens.privatizers.attacks.targets import target_of

    dealt = 0 if opened.claims is None else opened.claims.seed
    dealt = dealt if asked.seed is None else asked.seed
    split = _records(opened, data, asked, dealt, named=named)
    strange = _tell_attribute(without_path(data), split.test.sensitive_names, opened.hidden, tell)
    tell("structure: noise, bound, certificate ...")
    checks = check_structure(opened.network, opened.shape, opened.claims, split.test.records)
    checks += _other_records(opened.claims, without_path(data), strange=strange)
    noise = dealt + ANEW
    target = target_of(opened.network, split, noise, asked.records, fresh=asked.fresh_noise)
    if max(asked.releases) > 1 and target.told_apart(2) == 1:
        tell(REPEATED)
    effort, once = (QUICK if asked.quick else USUAL), tuple(dict.fromkeys(asked.releases))
    measured = measure_filter(target, effort, tell, names=asked.attackers, releases=once)
    return gate(target, checks, opened.claims, without_path(data), effort, measured, tell)


def _records(
    opened: _Opened, data: str, asked: AttackSettings, dealt: int, *, named: bool
) -> Split:
    """The records to attack with.

    Raises:
        WrongUse: they are of another shape, or nobody said where those of the claims lie.
    """
    from fedlens.data.attributes import load_private
    from fedlens.privatizers.private_data import PrivateDataError

    try:
        split = load_private(data, asked.data_dir, dealt)
    except PrivateDataError as error:
        if named:
            raise
        raise WrongUse(
            f"data: the filter was made for {data}, which cannot be read ({error}); say by --data "
            "(and --data-dir) where it lies"
        ) from None
    if split.test.shape != opened.shape:
        raise WrongUse(
            f"data {data!r} has records {split.test.shape}, the filter takes {opened.shape}; give "
            "data of the kind that it was trained on"
        )
    return split


def _no_records() -> Check:
    from fedlens.privatizers.attacks.structure import Check, Verdict

    return Check("records", Verdict.UNKNOWN, "none were named, so nothing was attacked")


def _other_records(claims: Claims | None, data: str, *, strange: bool) -> list[Check]:
    """That claims are of other records than those at hand, where they are."""
    from fedlens.privatizers.attacks.structure import Check, Verdict

    if claims is None or (claims.data == data and not strange):
        return []
    said = f"claims are of {claims.data}, attacked is {data}"
    return [Check("records", Verdict.UNKNOWN, said)]


def require_attackers() -> None:
    """Refuse to go on without what attackers are made of.

    Raises:
        WrongUse: saying what to install.
    """
    if find_spec("sklearn") is None:
        raise WrongUse("attackers need scikit-learn: pip install 'fedlens[attacks]'")


def _require_looking(names: Sequence[str], formula: str) -> None:
    from fedlens.privatizers.attacks.attackers import ATTACKERS, BLIND

    if names:
        known = [name for name in ATTACKERS if name not in BLIND]
        require_names("attackers", names, [*known, formula])


def _tell_attribute(
    data: str, attacked: Sequence[str], hidden: Sequence[str], tell: Callable[[str], None]
) -> bool:
    """Say what is attacked, and whether the filter was made to hide something else."""
    tell(f"attacked: the sensitive attribute of {data}{_listed(attacked)}")
    strange = bool(hidden) and tuple(attacked) != tuple(hidden)
    if strange:
        tell(
            f"NOT WHAT THE FILTER HIDES{_listed(hidden)}: to attack that, give by --data the "
            "records that it was made for"
        )
    return strange


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > SHOWN else ""
    return f" ({', '.join(names[:SHOWN])}{more})" if names else ""


class _Opened(NamedTuple):
    network: nn.Module
    shape: tuple[int, ...]
    hidden: tuple[str, ...] = ()
    claims: Claims | None = None


def _opened(path: Path, trusted: bool) -> _Opened:
    from fedlens.api.privatizer import load
    from fedlens.privatizers.exported import SUFFIXES, ExportedFilter

    if path.suffix.lower() in SUFFIXES:
        network = ExportedFilter.open(path, trusted=trusted)
        return _Opened(network, network.shape)
    if not path.exists():
        raise WrongUse(f"filter {path}: there is no such file or folder")
    loaded = load(path)
    return _Opened(loaded.network, loaded.shape, loaded.sensitive_names, loaded.claims)
